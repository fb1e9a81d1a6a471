/** What another representative could have changed, in float64 in the order of operations written down ("Bounds"). */

import { figureOf } from "./kinds.mjs";

const Z = 1.645;
const LN_10 = 2.302585092994046;
const ROUNDING = 1 + 1e-9;

/** log10 of the odds above which noise protects nobody. */
export const NO_PROTECTION = 3;

const capped = (value) => Math.min(value, Number.MAX_VALUE);

/** The displacement of a cluster, and its ratio to the noise; null where there is no Gaussian noise. */
export function boundsOf(cluster, tau, representatives) {
  const displacement = capped((Number(cluster.weight) * Number(cluster.spread)) / representatives);
  if (displacement === 0) return { displacement: 0, ratio: 0 };
  return { displacement, ratio: tau > 0 ? capped(displacement / tau) : null };
}

export function log10Odds(ratio) {
  return ratio === null ? null : capped(((ratio * ratio) / 2 + ratio * Z) / LN_10);
}

/** Over all clusters: the largest displacement, and the root of the sum of squared ratios. */
export function totalOf(bounds) {
  let [displacement, squares] = [0, 0];
  for (const each of bounds) {
    displacement = Math.max(displacement, each.displacement);
    squares += (each.ratio ?? 0) * (each.ratio ?? 0);
  }
  const ratio = bounds.some((each) => each.ratio === null) ? null : Math.sqrt(capped(squares));
  return { displacement, ratio };
}

/** The chance that the leaver was a representative at least once. */
export function chanceDrawn(sizes, representatives) {
  let never = 1;
  for (const size of sizes) never *= 1 - Math.min(1, representatives / size);
  return 1 - never;
}

/** A figure, or null. */
export const figureOrNull = (value) => (value === null ? null : figureOf(value));

/** Whether the odds are within a limit. */
export function withinOdds(ratio, odds) {
  const found = log10Odds(ratio);
  return found !== null && found <= nearestLog10(odds);
}

const PRECISION = 200n;
const ONE = 1n << PRECISION;

/** 2·atanh(numerator / denominator), which is ln((denominator + numerator) / (denominator - numerator)), times 2^200. */
function twoAtanh(numerator, denominator) {
  const [above, below] = [numerator * numerator, denominator * denominator];
  let [power, sum] = [(2n * ONE * numerator) / denominator, 0n];
  for (let i = 1n; power !== 0n; i += 2n) {
    sum += power / i;
    power = (power * above) / below;
  }
  return sum;
}

const LN_2 = twoAtanh(1n, 3n);

/** log10 of a number from 1 on, rounded to the nearest float64: `Math.log10` may be one beside it, by browser. */
export function nearestLog10(value) {
  const exponent = Math.min(Math.floor(Math.log2(value)), 1023); // log2 of the largest float64 is rounded to 1024
  const fraction = BigInt((value / 2 ** exponent) * 2 ** 52); // all bits of a number between about 1 and 2
  const unit = 1n << 52n;
  const ln = twoAtanh(fraction - unit, fraction + unit) + BigInt(exponent) * LN_2;
  const ln10 = 3n * LN_2 + twoAtanh(1n, 9n);
  return Number((ln * ONE) / ln10) / 2 ** Number(PRECISION);
}

/** Whether τ of a round is that of the policy, as far as one of its clusters tells. */
export function noiseFits(policy, round, cluster) {
  const tau = Number(round.tau);
  if (policy.noise === "calibrated") return tau === Number(policy.tau ?? "0.0");
  const onAggregate = policy.noise === "sensitivity";
  if (!onAggregate && (policy.noise !== "paper" || policy.distribution !== "gaussian")) return tau === 0;
  const [weight, share] = [Number(cluster.weight), Number(policy.sigma) / policy.representatives];
  const own = weight * Number(cluster.spread);
  if (!(tau * ROUNDING >= own * share)) return false;
  if (share === 0 && tau !== 0) return false;
  if (round.clusters === 1 && !(tau <= own * share * ROUNDING)) return false;
  if (policy.delta !== null || policy.relative_delta !== null) return true;
  const rest = (1 - weight) * Number(round.delta);
  const [longer, shorter] = [Math.max(own, rest), Math.min(own, rest)];
  const sum = longer === 0 ? 0 : longer * Math.sqrt(1 + (shorter / longer) * (shorter / longer));
  const widest = onAggregate ? longer : sum;
  return tau <= share * widest * ROUNDING;
}

/** Which of the files of a verification a dropped file is. What it says is not believed: each check reads it anew. */

const READ = 16 << 20;
const TYPES = [
  ["opening", '"type":"disavow/opening/v1"'],
  ["receipts", '"type":"disavow/receipt/v2"'],
  ["word", '"type":"disavow/word/v1"'],
];

const WITNESS = "[A-Za-z0-9][A-Za-z0-9._:/@-]{0,99}\\+[0-9a-f]{8}\\+B[A-P][A-Za-z0-9+/]{42}";
const WITNESSES = new RegExp(`^\\s*(?:${WITNESS}\\s+)*${WITNESS}\\s*$`);

/** The role of a file; null where nothing tells. */
export async function roleOf(file) {
  if (file.size > READ || /\.safetensors$/i.test(file.name)) return "model";
  const text = new TextDecoder("latin1").decode(await file.arrayBuffer());
  if (text.startsWith('{"payload":')) {
    if (text.includes('"payloadType":"application/vnd.disavow.serving+json"')) return "serving";
    return text.includes(TYPES[2][1]) ? "word" : "proof";
  }
  for (const [role, type] of TYPES) if (text.startsWith("{") && text.includes(type)) return role;
  if (/^\s*\{[^]*"disavow\/keys\/v[0-9]/.test(text)) return "keys";
  if (text.startsWith("disavow/run/")) return "checkpoint";
  // a key of a witness begins with the byte 4, that of a server with 1
  if (WITNESSES.test(text)) return "witnesses";
  if (/^\s*[A-Za-z0-9][A-Za-z0-9._:/@-]{0,99}\+[0-9a-f]{8}\+[A-Za-z0-9+/=]{44}\s*$/.test(text)) return "keys";
  return null;
}

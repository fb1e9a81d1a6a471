/** Where the script begins: in the page, and in the worker that the page makes of the same text. */

import { runPage } from "./view.mjs";
import { answerMessages } from "./worker.mjs";

if (typeof document === "undefined") answerMessages(globalThis);
else runPage(document.currentScript.textContent);

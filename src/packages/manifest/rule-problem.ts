import type { DocumentPath } from "./yaml-document.ts";

/** A broken rule and its location in the manifest. */
export interface RuleProblem {
  path: DocumentPath;
  message: string;
}

/** A text with placeholders. */
export interface Template {
  path: DocumentPath;
  text: string;
}

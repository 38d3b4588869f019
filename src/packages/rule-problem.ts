import type { DocumentPath } from "./yaml-document.ts";

/** A broken rule and the place in the manifest that breaks it. */
export interface RuleProblem {
  path: DocumentPath;
  message: string;
}

/** A piece of text in which placeholders are expanded. */
export interface Template {
  path: DocumentPath;
  text: string;
}

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

/** Formats paths of values in violations: `values.port`, `values["a.b"][0]`. */

/** Unescapes a step of a JSON Pointer. */
export function pointerKey(step: string): string {
  return step.replaceAll("~1", "/").replaceAll("~0", "~");
}

/** Formats a step of a JSON Pointer. */
export function fieldStep(step: string): string {
  const key = pointerKey(step);
  if (/^\d+$/.test(key)) return `[${key}]`;
  return /^[A-Za-z_][A-Za-z0-9_-]*$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`;
}

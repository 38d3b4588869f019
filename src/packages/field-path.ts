/** How a place in a value is spelled in violations: `values.port`, `values["a.b"][0]`. */

/** What a step of a JSON Pointer stands for. */
export function pointerKey(step: string): string {
  return step.replaceAll("~1", "/").replaceAll("~0", "~");
}

/** A step of a JSON Pointer in that spelling. */
export function fieldStep(step: string): string {
  const key = pointerKey(step);
  if (/^\d+$/.test(key)) return `[${key}]`;
  return /^[A-Za-z_][A-Za-z0-9_-]*$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`;
}

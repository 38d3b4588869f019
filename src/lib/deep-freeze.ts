/** Freezes a tree of values; bytes stay as they are, since JavaScript cannot freeze them. */
export function deepFreeze<T>(value: T): T {
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value)) return value;
  for (const held of Object.values(value)) if (typeof held === "object") deepFreeze(held);
  return Object.freeze(value);
}

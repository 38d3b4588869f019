/**
 * A value is cacheable if it is deeply frozen. A producer returns the same object until something in it changes, so a
 * consumer that serializes it may cache the result for the object's lifetime.
 */

/**
 * Freezes a value, its content first. A value that is already frozen is not walked again. Bytes are skipped, because
 * JavaScript cannot freeze them.
 */
export function cacheable<T>(value: T): T {
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value) || isCacheable(value))
    return value;
  for (const held of Object.values(value)) cacheable(held);
  return Object.freeze(value);
}

export function isCacheable(value: object): boolean {
  return Object.isFrozen(value);
}

/** Freezes a tree of values, except for bytes, which JavaScript cannot freeze. */
export function deepFreeze<T>(value: T): T {
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value)) return value;
  for (const held of Object.values(value)) if (typeof held === "object") deepFreeze(held);
  return Object.freeze(value);
}

/**
 * An answer is cacheable when it is frozen with all that it holds: whoever gives one gives the very same object until something
 * in it is another, so that whoever serializes it may keep what it comes to for as long as the object lives.
 */

/** Makes it so, what it holds first. What is cacheable already is not walked again; bytes stay as they are, since JavaScript cannot freeze them. */
export function cacheable<T>(value: T): T {
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value) || isCacheable(value))
    return value;
  for (const held of Object.values(value)) cacheable(held);
  return Object.freeze(value);
}

export function isCacheable(value: object): boolean {
  return Object.isFrozen(value);
}

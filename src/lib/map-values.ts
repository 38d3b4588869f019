/** An object with the same keys, and what `map` makes of each value. */
export function mapValues<T, U>(
  values: Readonly<Record<string, T>>,
  map: (value: T) => U,
): Record<string, U> {
  return Object.fromEntries(Object.entries(values).map(([key, value]) => [key, map(value)]));
}

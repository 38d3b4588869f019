/** An object with the same keys, and what `map` makes of each value and its key. */
export function mapValues<T, U>(
  values: Readonly<Record<string, T>>,
  map: (value: T, key: string) => U,
): Record<string, U> {
  return Object.fromEntries(Object.entries(values).map(([key, value]) => [key, map(value, key)]));
}

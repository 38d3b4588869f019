/** Returns an object with the same keys, whose values are `map` of each value and its key. */
export function mapValues<T, U>(
  values: Readonly<Record<string, T>>,
  map: (value: T, key: string) => U,
): Record<string, U> {
  return Object.fromEntries(Object.entries(values).map(([key, value]) => [key, map(value, key)]));
}

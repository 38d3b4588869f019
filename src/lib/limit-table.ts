/** Integer settings: the default and the allowed range of each, both ends included. */
export type LimitTable<Name extends string = string> = Readonly<
  Record<Name, { readonly default: number; readonly min: number; readonly max: number }>
>;

/** A value for each setting of a table. */
export type LimitsIn<Table extends LimitTable> = { readonly [Name in keyof Table]: number };

export function defaultsOf<Table extends LimitTable>(table: Table): LimitsIn<Table> {
  return Object.fromEntries(
    Object.entries(table).map(([name, limit]) => [name, limit.default]),
  ) as LimitsIn<Table>;
}

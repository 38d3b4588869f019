import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { texts } from "../texts.ts";

const rowsAtOnce = 200;

export interface Column<Row> {
  readonly title: string;
  readonly cell: (row: Row) => ComponentChildren;
  /** `figure`: a number. `word`: not wrapped. `long`: long text, wrapped. `actions`: buttons. */
  readonly kind?: "figure" | "word" | "long" | "actions";
}

export interface TableProps<Row> {
  /** Accessible name of the table. */
  readonly label: string;
  /** The first column names the row. */
  readonly columns: readonly Column<Row>[];
  /** Undefined while loading. */
  readonly rows: readonly Row[] | undefined;
  readonly keyOf: (row: Row) => string;
  /** Text for an empty table. */
  readonly none: string;
  /** Rows rendered before the user requests more. */
  readonly atOnce?: number;
}

/**
 * A table wider than the page scrolls, also with the keyboard. On a narrow screen each row is a card with the
 * column titles. Roles are explicit, because some browsers drop table semantics when CSS changes the layout.
 */
export function Table<Row>({ label, columns, rows, keyOf, none, atOnce = rowsAtOnce }: TableProps<Row>) {
  const most = useSignal(atOnce);
  const { setPlace, onFocusIn } = useFocusFallback();
  if (rows === undefined) return <p>{texts.loading}</p>;
  if (rows.length === 0)
    return (
      <p ref={setPlace} tabIndex={-1}>
        {none}
      </p>
    );
  const hiddenCount = rows.length - most.value;
  return (
    <>
      <div ref={setPlace} class="table" role="region" aria-label={label} tabIndex={0} onFocusIn={onFocusIn}>
        <table role="table">
          <thead role="rowgroup">
            <tr role="row">
              {columns.map(({ title, kind }) => (
                <th key={title} scope="col" role="columnheader" class={kind}>
                  {title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody role="rowgroup">
            {rows.slice(0, most.value).map((row) => (
              <tr key={keyOf(row)} role="row">
                {columns.map(({ title, cell, kind }, at) =>
                  at === 0 ? (
                    <th key={title} scope="row" role="rowheader">
                      {cell(row)}
                    </th>
                  ) : (
                    <td key={title} role="cell" class={kind} data-title={title}>
                      {cell(row)}
                    </td>
                  ),
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {hiddenCount > 0 && (
        <button type="button" onClick={() => (most.value += atOnce)}>
          {texts.more(hiddenCount)}
        </button>
      )}
    </>
  );
}

/**
 * If the focused element disappears, such as a removed row, the focus moves to the table instead of the start
 * of the page.
 */
function useFocusFallback() {
  const place = useRef<HTMLElement | null>(null);
  const last = useRef<Node | undefined>(undefined);
  useEffect(() => {
    if (last.current?.isConnected !== false) return;
    last.current = undefined;
    if (document.activeElement === document.body) place.current?.focus({ preventScroll: true });
  });
  return {
    setPlace: (at: HTMLElement | null): void => void (place.current = at),
    onFocusIn: ({ target }: FocusEvent): void => void (last.current = target as Node),
  };
}

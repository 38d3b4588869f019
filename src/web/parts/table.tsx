import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { texts } from "../texts.ts";

const rowsAtOnce = 200;

export interface Column<Row> {
  readonly title: string;
  readonly cell: (row: Row) => ComponentChildren;
  /** `figure`: a number. `word`: it stays in one line. `long`: more than a few words, which take their room. `actions`: buttons. */
  readonly kind?: "figure" | "word" | "long" | "actions";
}

export interface TableProps<Row> {
  /** What it is a table of. */
  readonly label: string;
  /** The first one names the row. */
  readonly columns: readonly Column<Row>[];
  /** Undefined until they are known. */
  readonly rows: readonly Row[] | undefined;
  readonly keyOf: (row: Row) => string;
  /** What is said when there are none. */
  readonly none: string;
  /** Rows that are drawn before one asks for more. */
  readonly atOnce?: number;
}

/**
 * Where it is wider than the page it scrolls by itself, with the keyboard too; on a narrow screen each row is a card with the
 * titles beside what they say. Roles are said because what is laid out as something else than a table is none to some.
 */
export function Table<Row>({ label, columns, rows, keyOf, none, atOnce = rowsAtOnce }: TableProps<Row>) {
  const most = useSignal(atOnce);
  const { setPlace, onFocusIn } = useStay();
  if (rows === undefined) return <p>{texts.loading}</p>;
  if (rows.length === 0)
    return (
      <p ref={setPlace} tabIndex={-1}>
        {none}
      </p>
    );
  const left = rows.length - most.value;
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
      {left > 0 && (
        <button type="button" onClick={() => (most.value += atOnce)}>
          {texts.more(left)}
        </button>
      )}
    </>
  );
}

/** Whoever was in what is gone, such as a row that they removed, goes on at its table and not at the beginning of the page. */
function useStay() {
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

import { useSignal } from "@preact/signals";
import type { FileMatch, SearchFilesResult } from "../../../../gen/svc/v1/file_pb.ts";
import { useAction } from "../../action.ts";
import { Failure } from "../../parts/failure.tsx";
import { CheckField, TextField, tickedInto, typedInto } from "../../parts/field.tsx";
import { Text } from "../../parts/text.tsx";
import { plainLine } from "../../plain-text.ts";
import { fileTexts as says } from "../../texts/files.ts";
import { linkTo, type FileClient } from "./paths.ts";

const mostMatches = 500;
/** What is found in this time is shown together. */
const gatherMs = 100;

/** Finds files below a directory by their names, by lines in them, or both. */
export function SearchFiles({ client, path }: { client: FileClient; path: string }) {
  const name = useSignal("");
  const content = useSignal("");
  const hidden = useSignal(false);
  const found = useSignal<readonly FileMatch[]>([]);
  const result = useSignal<SearchFilesResult | undefined>(undefined);
  const { busy, failure, perform, cancel } = useAction();
  const search = (event: SubmitEvent): void => {
    event.preventDefault();
    void perform("search", async (signal) => {
      [found.value, result.value] = [[], undefined];
      let waiting: FileMatch[] = [];
      let shownAt = 0;
      const show = (): void => {
        found.value = [...found.value, ...waiting];
        waiting = [];
        shownAt = performance.now();
      };
      const wanted = {
        ...{ path, content: content.value, hidden: hidden.value, ignoreCase: true, limit: mostMatches },
        name: patternOf(name.value.trim()),
      };
      for await (const { event: told } of client.searchFiles(wanted, { signal })) {
        if (told.case === "match") waiting.push(told.value);
        else if (told.case === "result") result.value = told.value;
        if (performance.now() - shownAt > gatherMs) show();
      }
      show();
    });
  };
  const ended = result.value;
  return (
    <details>
      <summary>{says.search}</summary>
      <form class="card settings" onSubmit={search}>
        <TextField
          label={says.searchName}
          hint={says.searchNameHint}
          {...typedInto(name)}
          input={{ maxLength: 200, required: content.value === "" }}
        />
        <TextField label={says.searchContent} {...typedInto(content)} input={{ maxLength: 512 }} />
        <CheckField label={says.searchHidden} {...tickedInto(hidden)} />
        <div class="row">
          <button type="submit" aria-busy={busy !== ""}>
            {says.searchNow}
          </button>
          {busy !== "" && (
            <button type="button" onClick={cancel}>
              {says.cancel}
            </button>
          )}
          <span role="status">
            {ended !== undefined &&
              says.searched(Number(ended.matches), Number(ended.failedCount), ended.truncated)}
          </span>
        </div>
        <Failure says={failure} />
        {found.value.length > 0 && (
          <ul class="found" aria-label={says.found}>
            {found.value.map(({ entry, line, text }) => (
              <li key={`${entry?.path ?? ""} ${String(line ?? "")}`}>
                <a href={linkTo(entry?.path ?? "")}>
                  <Text of={(entry?.path ?? "").slice(path === "/" ? 1 : path.length + 1)} />
                </a>{" "}
                {line !== undefined && (
                  <>
                    <span class="quiet">{says.line(String(line))}</span> <code>{plainLine(text)}</code>
                  </>
                )}
              </li>
            ))}
          </ul>
        )}
      </form>
    </details>
  );
}

/** A word is looked for anywhere in names; what has a `*`, `?` or `[` is a pattern of its own. */
function patternOf(typed: string): string {
  return typed === "" || /[*?[]/.test(typed) ? typed : `*${typed}*`;
}

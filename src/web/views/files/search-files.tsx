import { useSignal } from "@preact/signals";
import type { FileMatch, SearchFilesResult } from "../../../../gen/svc/v1/file_pb.ts";
import { useAction } from "../../action.ts";
import { Failure } from "../../parts/failure.tsx";
import { CheckField, TextField, bindCheckbox, bindText } from "../../parts/field.tsx";
import { Text } from "../../parts/text.tsx";
import { plainLine } from "../../plain-text.ts";
import { fileTexts as labels } from "../../texts/files.ts";
import { linkTo, type FileClient } from "./paths.ts";

const maxMatches = 500;
/** Milliseconds: matches within this time are rendered together. */
const batchMs = 100;

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
      const request = {
        ...{ path, content: content.value, hidden: hidden.value, ignoreCase: true, limit: maxMatches },
        name: patternOf(name.value.trim()),
      };
      for await (const { event } of client.searchFiles(request, { signal })) {
        if (event.case === "match") waiting.push(event.value);
        else if (event.case === "result") result.value = event.value;
        if (performance.now() - shownAt > batchMs) show();
      }
      show();
    });
  };
  const ended = result.value;
  return (
    <details>
      <summary>{labels.search}</summary>
      <form class="card settings" onSubmit={search}>
        <TextField
          label={labels.searchName}
          hint={labels.searchNameHint}
          {...bindText(name)}
          input={{ maxLength: 200, required: content.value === "" }}
        />
        <TextField label={labels.searchContent} {...bindText(content)} input={{ maxLength: 512 }} />
        <CheckField label={labels.searchHidden} {...bindCheckbox(hidden)} />
        <div class="row">
          <button type="submit" aria-busy={busy !== ""}>
            {labels.searchNow}
          </button>
          {busy !== "" && (
            <button type="button" onClick={cancel}>
              {labels.cancel}
            </button>
          )}
          <span role="status">
            {ended !== undefined &&
              labels.searched(Number(ended.matches), Number(ended.failedCount), ended.truncated)}
          </span>
        </div>
        <Failure message={failure} />
        {found.value.length > 0 && (
          <ul class="found" aria-label={labels.found}>
            {found.value.map(({ entry, line, text }) => (
              <li key={`${entry?.path ?? ""} ${String(line ?? "")}`}>
                <a href={linkTo(entry?.path ?? "")}>
                  <Text of={(entry?.path ?? "").slice(path === "/" ? 1 : path.length + 1)} />
                </a>{" "}
                {line !== undefined && (
                  <>
                    <span class="quiet">{labels.line(String(line))}</span> <code>{plainLine(text)}</code>
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

/** A word matches anywhere in a name; text with `*`, `?` or `[` is a pattern. */
function patternOf(typed: string): string {
  return typed === "" || /[*?[]/.test(typed) ? typed : `*${typed}*`;
}

import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import type { FileEntry } from "../../../../gen/svc/v1/file_pb.ts";
import { useAction } from "../../action.ts";
import { describeError, type Api } from "../../api.ts";
import { draftAt, dropDraft, saveDraft, type FileText } from "../../drafts.ts";
import { Failure } from "../../parts/failure.tsx";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { plainLine } from "../../plain-text.ts";
import { saveFile } from "../../save-file.ts";
import { texts } from "../../texts.ts";
import { fileTexts as labels } from "../../texts/files.ts";
import { UserFacingError } from "../../user-facing-error.ts";
import { UploadError } from "../../upload.ts";
import { formatBytes } from "../../units.ts";
import type { FileClient } from "./paths.ts";

/** Longer files are downloaded. */
const maxShownBytes = 512 * 1024;

interface Props {
  api: Api;
  client: FileClient;
  entry: FileEntry;
  /** The user who views the file. */
  uid: number;
}

/** A text file, shown and editable; other files can be downloaded. */
export function FileContent({ api, client, entry, uid }: Props) {
  const { path, name, sizeBytes, modifiedAt, owner, group, mode } = entry;
  const place = { uid, path };
  const stored = useMemo(() => draftAt(place), [uid, path]);
  const content = useSignal(stored?.before);
  const problem = useSignal("");
  const draft = useSignal(stored?.typed);
  const notice = useSignal(stored === undefined ? "" : labels.unsaved);
  const left = useSignal(0);
  const { busy, failure, perform } = useAction();
  const read = async (signal: AbortSignal): Promise<void> => {
    try {
      content.value = await readText(client, path, signal);
      problem.value = "";
    } catch (error) {
      if (!signal.aborted) problem.value = describeError(error);
    }
  };
  useEffect(() => {
    // The draft is based on the earlier content.
    if (draft.value !== undefined) return;
    const over = new AbortController();
    void read(over.signal);
    return () => over.abort();
  }, [client, path, left.value]);
  const type = (typed: string): void => {
    draft.value = typed;
    notice.value = "";
    const before = content.value;
    if (before === undefined || typed === before.text) dropDraft(place);
    else saveDraft(place, { typed, before });
  };
  const leave = (): void => {
    dropDraft(place);
    draft.value = undefined;
    content.value = undefined;
    notice.value = "";
    left.value++;
  };
  const save = (typed: string, before: FileText, end: string): Promise<void> =>
    perform("save", async (signal) => {
      const sent = typed.replaceAll("\n", end);
      try {
        await api.upload(sent, { path, ifMatch: before.etag, signal });
      } catch (error) {
        throw error instanceof UploadError && error.reason === "changed"
          ? new UserFacingError(labels.changed)
          : error;
      }
      if (draft.value === typed) dropDraft(place);
      await read(signal);
      // The user may have typed more while saving.
      const isAll = draft.value === typed || draft.value === undefined;
      if (isAll) draft.value = undefined;
      // Somebody else saved first, and the current draft is not based on their version.
      else if (content.value?.text !== sent) content.value = before;
      if (draft.value !== undefined) type(draft.value);
      notice.value = isAll ? labels.saved : labels.savedUntil;
    });
  const now = content.value;
  const text = now?.isWhole === true ? now.text : undefined;
  const end = text === undefined ? undefined : endOf(text);
  return (
    <>
      <p class="quiet">
        {formatBytes(sizeBytes)}, <Text of={`${owner}:${group} ${mode}`} />, <When at={modifiedAt} />
      </p>
      <div class="row">
        <button
          type="button"
          aria-busy={busy === "download"}
          onClick={() =>
            void perform("download", (signal) => saveFile(client.readFile({ path }, { signal }), name))
          }
        >
          {labels.download}
        </button>
        {text !== undefined && end !== undefined && draft.value === undefined && (
          <button type="button" onClick={() => (draft.value = text.replaceAll(end, "\n"))}>
            {labels.edit}
          </button>
        )}
        <span role="status">{notice.value}</span>
      </div>
      <Failure message={problem.value} />
      <Failure message={failure} />
      {text !== undefined && end === undefined && <p class="notice">{labels.mixedEnds}</p>}
      {now === undefined && problem.value === "" && <p>{texts.loading}</p>}
      {now !== undefined && draft.value === undefined && <Shown of={now} />}
      {now !== undefined && draft.value !== undefined && (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void save(draft.value ?? "", now, end ?? "\n");
          }}
        >
          <textarea
            class="editor"
            aria-label={labels.text}
            rows={24}
            spellcheck={false}
            value={draft.value}
            onInput={({ currentTarget }) => type(currentTarget.value)}
          />
          <div class="row">
            <button type="submit" aria-busy={busy === "save"}>
              {labels.save}
            </button>
            <button type="button" onClick={leave}>
              {labels.leave}
            </button>
          </div>
        </form>
      )}
    </>
  );
}

function Shown({ of: { text, isWhole } }: { of: FileText }) {
  if (!isWhole) return <p class="notice">{labels.tooLong}</p>;
  if (text === undefined) return <p class="notice">{labels.notShown}</p>;
  if (text === "") return <p>{labels.emptyFile}</p>;
  return (
    <pre class="command" tabIndex={0}>
      {text.split("\n").map(plainLine).join("\n")}
    </pre>
  );
}

/** The line ending; undefined if mixed, because a text field would unify them. */
function endOf(text: string): string | undefined {
  const rest = text.replaceAll("\r\n", "");
  if (rest.includes("\r")) return undefined;
  if (rest.length === text.length) return "\n";
  return rest.includes("\n") ? undefined : "\r\n";
}

async function readText(client: FileClient, path: string, signal: AbortSignal): Promise<FileText> {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let [text, etag, isWhole, isText]: [string, string, boolean, boolean] = ["", "", true, true];
  for await (const piece of client.readFile({ path, length: BigInt(maxShownBytes) }, { signal })) {
    etag ||= piece.etag ?? "";
    if (piece.sizeBytes !== undefined) isWhole = piece.sizeBytes <= maxShownBytes;
    if (!isText) continue;
    try {
      text += decoder.decode(piece.content?.data, { stream: true });
    } catch {
      isText = false;
    }
  }
  try {
    text += decoder.decode();
  } catch {
    isText = false;
  }
  // A zero byte means binary. A truncated text may end within a character.
  return { text: isText && !text.includes("\0") ? text : undefined, etag, isWhole };
}

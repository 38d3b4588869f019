import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { useAction } from "../../action.ts";
import { describeError, type Api } from "../../api.ts";
import { Confirm } from "../../parts/confirm.tsx";
import { Failure } from "../../parts/failure.tsx";
import { Meter } from "../../parts/meter.tsx";
import { plainText } from "../../plain-text.ts";
import { fileTexts as says } from "../../texts/files.ts";
import { ToldError } from "../../told-error.ts";
import { UploadError } from "../../upload.ts";
import { formatPercent } from "../../units.ts";

interface Props {
  api: Api;
  /** The directory. */
  path: string;
  onDone: () => void;
}

/** Takes files that are chosen or dropped onto the page, one after the other; what is there already is asked about. */
export function UploadFiles({ api, path, onDone }: Props) {
  const { busy, failure, perform, cancel } = useAction();
  const current = useSignal("");
  const share = useSignal(0);
  const said = useSignal("");
  const existing = useSignal<readonly File[]>([]);
  const put = async (file: File, overwrite: boolean, signal: AbortSignal): Promise<void> => {
    signal.throwIfAborted();
    current.value = file.name;
    share.value = 0;
    await api.upload(file, {
      path,
      name: file.name,
      overwrite,
      onProgress: (now) => (share.value = now),
      signal,
    });
  };
  const upload = async (files: readonly File[]): Promise<void> => {
    if (files.length === 0) return;
    if (busy !== "") {
      said.value = says.stillUploading;
      return;
    }
    said.value = "";
    let done = 0;
    await perform("upload", async (signal) => {
      const [found, refused]: [File[], string[]] = [[], []];
      for (const file of files) {
        try {
          await put(file, false, signal);
          done++;
        } catch (error) {
          if (signal.aborted) throw error;
          if (error instanceof UploadError && error.reason === "already_exists") found.push(file);
          else refused.push(says.notUploaded(file.name, describeError(error)));
        }
      }
      existing.value = [...existing.value, ...found];
      if (refused.length > 0) throw new ToldError(refused.join(" "));
    });
    said.value = done > 0 ? says.uploaded(done) : "";
    onDone();
  };
  useEffect(() => {
    const over = (event: DragEvent): void => event.preventDefault();
    const drop = (event: DragEvent): void => {
      event.preventDefault();
      void upload([...(event.dataTransfer?.files ?? [])]);
    };
    document.addEventListener("dragover", over);
    document.addEventListener("drop", drop);
    return () => {
      document.removeEventListener("dragover", over);
      document.removeEventListener("drop", drop);
    };
  });
  const [asked] = existing.value;
  return (
    <>
      <label class="upload">
        {says.upload}{" "}
        <input
          type="file"
          multiple
          onChange={({ currentTarget }) => {
            const chosen = [...(currentTarget.files ?? [])];
            currentTarget.value = "";
            void upload(chosen);
          }}
        />
      </label>
      <span class="quiet">{says.uploadHint}</span>
      {busy !== "" && (
        <>
          <Meter
            label={says.uploading(plainText(current.value))}
            share={share.value}
            says={formatPercent(share.value)}
          />
          <button type="button" onClick={cancel}>
            {says.cancel}
          </button>
        </>
      )}
      <span role="status">{said.value}</span>
      <Failure says={failure} />
      {asked !== undefined && (
        <Confirm
          key={asked.name}
          title={says.replaceTitle(plainText(asked.name))}
          action={says.replace}
          onClose={() => (existing.value = existing.value.filter((file) => file !== asked))}
          onConfirm={async (signal) => {
            await put(asked, true, signal);
            onDone();
          }}
        >
          <p>{says.replaceLoses}</p>
        </Confirm>
      )}
    </>
  );
}

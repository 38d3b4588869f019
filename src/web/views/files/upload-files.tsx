import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { useAction } from "../../action.ts";
import { describeError, type Api } from "../../api.ts";
import { Confirm } from "../../parts/confirm.tsx";
import { Failure } from "../../parts/failure.tsx";
import { Meter } from "../../parts/meter.tsx";
import { plainText } from "../../plain-text.ts";
import { fileTexts as labels } from "../../texts/files.ts";
import { UserFacingError } from "../../user-facing-error.ts";
import { UploadError } from "../../upload.ts";
import { formatPercent } from "../../units.ts";

interface Props {
  api: Api;
  /** The directory. */
  path: string;
  onDone: () => void;
}

/** Uploads chosen or dropped files one after the other, and asks before it replaces a file. */
export function UploadFiles({ api, path, onDone }: Props) {
  const { busy, failure, perform, cancel } = useAction();
  const current = useSignal("");
  const share = useSignal(0);
  const notice = useSignal("");
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
      notice.value = labels.stillUploading;
      return;
    }
    notice.value = "";
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
          else refused.push(labels.notUploaded(file.name, describeError(error)));
        }
      }
      existing.value = [...existing.value, ...found];
      if (refused.length > 0) throw new UserFacingError(refused.join(" "));
    });
    notice.value = done > 0 ? labels.uploaded(done) : "";
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
  const [existingFile] = existing.value;
  return (
    <>
      <label class="upload">
        {labels.upload}{" "}
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
      <span class="quiet">{labels.uploadHint}</span>
      {busy !== "" && (
        <>
          <Meter
            label={labels.uploading(plainText(current.value))}
            share={share.value}
            text={formatPercent(share.value)}
          />
          <button type="button" onClick={cancel}>
            {labels.cancel}
          </button>
        </>
      )}
      <span role="status">{notice.value}</span>
      <Failure message={failure} />
      {existingFile !== undefined && (
        <Confirm
          key={existingFile.name}
          title={labels.replaceTitle(plainText(existingFile.name))}
          action={labels.replace}
          onClose={() => (existing.value = existing.value.filter((file) => file !== existingFile))}
          onConfirm={async (signal) => {
            await put(existingFile, true, signal);
            onDone();
          }}
        >
          <p>{labels.replaceLoses}</p>
        </Confirm>
      )}
    </>
  );
}

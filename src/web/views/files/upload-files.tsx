import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { useAction } from "../../action.ts";
import type { Api } from "../../api.ts";
import { Confirm } from "../../parts/confirm.tsx";
import { Failure } from "../../parts/failure.tsx";
import { Meter } from "../../parts/meter.tsx";
import { plainText } from "../../plain-text.ts";
import { fileTexts as says } from "../../texts/files.ts";
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
  const share = useSignal(0);
  const said = useSignal("");
  const existing = useSignal<readonly File[]>([]);
  const put = async (file: File, overwrite: boolean, signal?: AbortSignal): Promise<void> => {
    share.value = 0;
    await api.upload(file, {
      path,
      name: file.name,
      overwrite,
      onProgress: (now) => (share.value = now),
      ...(signal && { signal }),
    });
  };
  const upload = async (files: readonly File[]): Promise<void> => {
    said.value = "";
    let done = 0;
    for (const file of files) {
      await perform(file.name, async (signal) => {
        try {
          await put(file, false, signal);
          done++;
        } catch (error) {
          if (!(error instanceof UploadError) || error.reason !== "already_exists") throw error;
          existing.value = [...existing.value, file];
        }
      });
    }
    if (done > 0) said.value = says.uploaded(done);
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
            label={says.uploading(plainText(busy))}
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
          onConfirm={async () => {
            await put(asked, true);
            onDone();
          }}
        >
          <p>{says.replaceLoses}</p>
        </Confirm>
      )}
    </>
  );
}

/** Parts of tables of files. */
import type { FileEntry } from "../../../gen/svc/v1/file_pb.ts";
import type { Action } from "../action.ts";
import { saveFile } from "../save-file.ts";
import { fileTexts as labels } from "../texts/files.ts";
import { formatBytes } from "../units.ts";
import type { Column } from "./table.tsx";
import { When } from "./when.tsx";

/** Size and time of entries. */
export const sizeAndTime: readonly Column<Pick<FileEntry, "type" | "sizeBytes" | "modifiedAt">>[] = [
  {
    title: labels.columns.size,
    kind: "figure",
    cell: ({ type, sizeBytes }) => (type === "file" ? formatBytes(sizeBytes) : ""),
  },
  { title: labels.columns.modified, cell: ({ modifiedAt }) => <When at={modifiedAt} /> },
];

interface DownloadProps extends Pick<Action, "busy" | "perform"> {
  /** Identifies the button among those of the table. */
  path: string;
  /** Suggested name of the saved file. */
  name: string;
  read: (signal: AbortSignal) => Parameters<typeof saveFile>[0];
}

export function Download({ busy, perform, path, name, read }: DownloadProps) {
  return (
    <button
      type="button"
      aria-busy={busy === path}
      onClick={() => void perform(path, (signal) => saveFile(read(signal), name))}
    >
      {labels.download}
    </button>
  );
}

import { useSignal } from "@preact/signals";
import { FileEntrySchema, type FileEntry } from "../../../../gen/svc/v1/file_pb.ts";
import type { Operation } from "../../../../gen/svc/v1/operation_pb.ts";
import type { Operations } from "../../operations.ts";
import { Confirm } from "../../parts/confirm.tsx";
import { TextField, bindText } from "../../parts/field.tsx";
import { plainText, sentence } from "../../plain-text.ts";
import { fileTexts as labels } from "../../texts/files.ts";
import { UserFacingError } from "../../user-facing-error.ts";
import { within, type FileClient } from "./paths.ts";

type Work = "rename" | "copy" | "pack" | "unpack";

export type Question =
  { readonly kind: "folder" } | { readonly kind: Work | "remove"; readonly entry: FileEntry };

interface Props {
  client: FileClient;
  operations: Operations;
  /** The shown directory. */
  path: string;
  question: Question;
  onDone: () => void;
  onClose: () => void;
}

/** Names of archives that can be unpacked. */
const archiveEnd = /\.(?:tar(?:\.(?:gz|zst|xz|bz2))?|zip)$/;

export function isArchive({ type, name }: FileEntry): boolean {
  return type === "file" && archiveEnd.test(name);
}

/** The suggested name of the result. */
const suggestions: Readonly<Record<Work, (name: string) => string>> = {
  rename: (name) => name,
  copy: (name) => labels.copyOf(name),
  pack: (name) => `${name}.tar.gz`,
  unpack: (name) => name.replace(archiveEnd, ""),
};

/** A dialog that asks for a name or a confirmation, then performs the action. */
export function FileDialog({ client, operations, path, question, onDone, onClose }: Props) {
  const { kind } = question;
  const isNamed = kind !== "folder" && kind !== "remove";
  const name = useSignal(isNamed ? suggestions[kind](question.entry.name) : "");
  if (kind === "remove") return <Remove {...{ client, onDone, onClose }} entry={question.entry} />;
  const to = name.value.startsWith("/") ? name.value : within(path, name.value);
  // A rename within a directory takes no time.
  const detach = kind !== "rename" || name.value.startsWith("/");
  const works: Readonly<Record<Work, (from: string) => Promise<Started>>> = {
    rename: (from) => client.movePath({ from, to, detach }),
    copy: (from) => client.copyPath({ from, to, detach }),
    pack: (from) => client.createArchive({ paths: [from], target: to, detach }),
    unpack: (from) => client.extractArchive({ path: from, target: to, detach }),
  };
  const { title, action, label } = isNamed
    ? {
        title: labels.titles[kind](plainText(question.entry.name)),
        action: labels[kind],
        label: labels.labels[kind],
      }
    : { title: labels.newFolder, action: labels.make, label: labels.folderName };
  return (
    <Confirm
      title={title}
      action={action}
      onClose={onClose}
      onConfirm={async (signal) => {
        if (isNamed) await finish(operations, await works[kind](question.entry.path), signal);
        else await client.createDirectory({ path: to });
        onDone();
      }}
    >
      <TextField
        label={label}
        hint={labels.pathHint}
        {...bindText(name)}
        input={{ required: true, maxLength: 4096 }}
      />
    </Confirm>
  );
}

interface Started {
  readonly detached?: Operation | undefined;
}

/** Closing the dialog cancels the work. Closing or reloading the page does not. */
async function finish(operations: Operations, started: Started, signal: AbortSignal): Promise<void> {
  if (started.detached === undefined) return;
  const { id } = started.detached;
  const cancel = (): void => void operations.cancel(id).catch(() => undefined);
  if (signal.aborted) cancel();
  signal.addEventListener("abort", cancel, { once: true });
  try {
    // The result is not shown.
    await operations.finish(started, FileEntrySchema, signal);
  } finally {
    signal.removeEventListener("abort", cancel);
  }
}

function Remove({
  client,
  entry,
  onDone,
  onClose,
}: Pick<Props, "client" | "onDone" | "onClose"> & { entry: FileEntry }) {
  return (
    <Confirm
      title={labels.removeTitle(plainText(entry.name))}
      action={labels.remove}
      {...(entry.type === "directory" && { typed: plainText(entry.name) })}
      onClose={onClose}
      onConfirm={async () => {
        const { failed } = await client.deletePaths({ paths: [entry.path] });
        onDone();
        if (failed.length > 0)
          throw new UserFacingError(
            failed.map(({ path, error }) => labels.stays(path, sentence(error))).join(" "),
          );
      }}
    >
      <p>{entry.type === "directory" ? labels.removeAllLoses : labels.removeLoses}</p>
    </Confirm>
  );
}

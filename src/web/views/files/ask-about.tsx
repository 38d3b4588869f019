import { useSignal } from "@preact/signals";
import type { FileEntry } from "../../../../gen/svc/v1/file_pb.ts";
import { Confirm } from "../../parts/confirm.tsx";
import { TextField, typedInto } from "../../parts/field.tsx";
import { plainText, sentence } from "../../plain-text.ts";
import { fileTexts as says } from "../../texts/files.ts";
import { ToldError } from "../../told-error.ts";
import { within, type FileClient } from "./paths.ts";

type Work = "rename" | "copy" | "pack" | "unpack";

export type Question =
  { readonly kind: "folder" } | { readonly kind: Work | "remove"; readonly entry: FileEntry };

interface Props {
  client: FileClient;
  /** The directory that one looks at. */
  path: string;
  question: Question;
  onDone: () => void;
  onClose: () => void;
}

/** Of what archives can be unpacked. */
const archiveEnd = /\.(?:tar|tar\.gz|tar\.zst|zip)$/;

export function isArchive({ type, name }: FileEntry): boolean {
  return type === "file" && archiveEnd.test(name);
}

/** What is suggested for what comes of it. */
const suggestions: Readonly<Record<Work, (name: string) => string>> = {
  rename: (name) => name,
  copy: (name) => says.copyOf(name),
  pack: (name) => `${name}.tar.gz`,
  unpack: (name) => name.replace(archiveEnd, ""),
};

/** Asks for a name, or for a yes, and does it. */
export function AskAbout({ client, path, question, onDone, onClose }: Props) {
  const { kind } = question;
  const isNamed = kind !== "folder" && kind !== "remove";
  const name = useSignal(isNamed ? suggestions[kind](question.entry.name) : "");
  if (kind === "remove") return <Remove {...{ client, onDone, onClose }} entry={question.entry} />;
  const to = name.value.startsWith("/") ? name.value : within(path, name.value);
  const works: Readonly<Record<Work, (from: string, signal: AbortSignal) => Promise<unknown>>> = {
    rename: (from) => client.movePath({ from, to }),
    copy: (from, signal) => client.copyPath({ from, to }, { signal }),
    pack: (from, signal) => client.createArchive({ paths: [from], target: to }, { signal }),
    unpack: (from, signal) => client.extractArchive({ path: from, target: to }, { signal }),
  };
  const { title, action, label } = isNamed
    ? {
        title: says.titles[kind](plainText(question.entry.name)),
        action: says[kind],
        label: says.labels[kind],
      }
    : { title: says.newFolder, action: says.make, label: says.folderName };
  return (
    <Confirm
      title={title}
      action={action}
      onClose={onClose}
      onConfirm={async (signal) => {
        await (isNamed ? works[kind](question.entry.path, signal) : client.createDirectory({ path: to }));
        onDone();
      }}
    >
      <TextField
        label={label}
        hint={says.pathHint}
        {...typedInto(name)}
        input={{ required: true, maxLength: 4096 }}
      />
    </Confirm>
  );
}

function Remove({
  client,
  entry,
  onDone,
  onClose,
}: Pick<Props, "client" | "onDone" | "onClose"> & { entry: FileEntry }) {
  return (
    <Confirm
      title={says.removeTitle(plainText(entry.name))}
      action={says.remove}
      {...(entry.type === "directory" && { typed: plainText(entry.name) })}
      onClose={onClose}
      onConfirm={async () => {
        const { failed } = await client.deletePaths({ paths: [entry.path] });
        onDone();
        if (failed.length > 0)
          throw new ToldError(failed.map(({ path, error }) => says.stays(path, sentence(error))).join(" "));
      }}
    >
      <p>{entry.type === "directory" ? says.removeAllLoses : says.removeLoses}</p>
    </Confirm>
  );
}

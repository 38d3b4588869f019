import { useSignal } from "@preact/signals";
import type { FileEntry } from "../../../../gen/svc/v1/file_pb.ts";
import { useAction } from "../../action.ts";
import type { Api } from "../../api.ts";
import { Confirm } from "../../parts/confirm.tsx";
import { Failure } from "../../parts/failure.tsx";
import { TextField } from "../../parts/field.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { plainText, sentence } from "../../plain-text.ts";
import { saveFile } from "../../save-file.ts";
import { fileTexts as says } from "../../texts/files.ts";
import { ToldError } from "../../told-error.ts";
import { formatBytes } from "../../units.ts";
import { linkTo, within, type FileClient, type Listing } from "./paths.ts";
import { UploadFiles } from "./upload-files.tsx";

const { columns } = says;

type Question =
  { readonly kind: "folder" } | { readonly kind: "rename" | "remove"; readonly entry: FileEntry };

interface Props {
  api: Api;
  client: FileClient;
  path: string;
  listing: Listing;
  onDone: () => void;
}

/** What is in a directory, and what may be done with it. */
export function Directory({ api, client, path, listing, onDone }: Props) {
  const isHiddenShown = useSignal(false);
  const asked = useSignal<Question | undefined>(undefined);
  const { busy, failure, perform } = useAction();
  const shown = listing.entries.filter(({ name }) => isHiddenShown.value || !name.startsWith("."));
  const ask = (question: Question): void => void (asked.value = question);
  const all: readonly Column<FileEntry>[] = [
    {
      title: columns.name,
      cell: ({ name, path: of, linkTarget }) => (
        <>
          <a href={linkTo(of)}>
            <Text of={name} />
          </a>{" "}
          {linkTarget !== undefined && <Text of={says.linkTo(linkTarget)} />}
        </>
      ),
    },
    {
      title: columns.size,
      isFigure: true,
      cell: ({ type, sizeBytes }) => (type === "file" ? formatBytes(sizeBytes) : ""),
    },
    { title: columns.modified, cell: ({ modifiedAt }) => <When at={modifiedAt} /> },
    { title: columns.owner, cell: ({ owner, group }) => <Text of={`${owner}:${group}`} /> },
    { title: columns.mode, cell: ({ mode }) => <Text of={mode} /> },
    {
      title: columns.actions,
      cell: (entry) => (
        <div class="buttons">
          {entry.type === "file" && (
            <button
              type="button"
              aria-busy={busy === entry.path}
              onClick={() =>
                void perform(entry.path, (signal) =>
                  saveFile(client.readFile({ path: entry.path }, { signal }), entry.name),
                )
              }
            >
              {says.download}
            </button>
          )}
          <button type="button" onClick={() => ask({ kind: "rename", entry })}>
            {says.rename}
          </button>
          <button type="button" class="danger" onClick={() => ask({ kind: "remove", entry })}>
            {says.remove}
          </button>
        </div>
      ),
    },
  ];
  return (
    <>
      <div class="row">
        <UploadFiles api={api} path={path} onDone={onDone} />
        <button type="button" onClick={() => ask({ kind: "folder" })}>
          {says.newFolder}
        </button>
        <label>
          <input
            type="checkbox"
            checked={isHiddenShown.value}
            onChange={({ currentTarget }) => (isHiddenShown.value = currentTarget.checked)}
          />{" "}
          {says.hidden}
        </label>
      </div>
      <Failure says={failure} />
      {listing.isCut && <p class="notice">{says.tooMany}</p>}
      <Table
        label={plainText(path)}
        rows={shown}
        keyOf={({ name }) => name}
        none={says.empty}
        columns={all}
      />
      {asked.value !== undefined && (
        <Ask
          client={client}
          path={path}
          question={asked.value}
          onDone={onDone}
          onClose={() => (asked.value = undefined)}
        />
      )}
    </>
  );
}

interface AskProps extends Pick<Props, "client" | "path" | "onDone"> {
  question: Question;
  onClose: () => void;
}

function Ask({ client, path, question, onDone, onClose }: AskProps) {
  const name = useSignal(question.kind === "rename" ? question.entry.name : "");
  const field = (label: string) => (
    <TextField
      label={label}
      value={name.value}
      onType={(value) => (name.value = value)}
      input={{ required: true, maxLength: 255 }}
    />
  );
  const answer = { onClose, path: within(path, name.value) };
  if (question.kind === "folder") {
    return (
      <Confirm
        title={says.newFolder}
        action={says.make}
        onClose={onClose}
        onConfirm={async () => {
          await client.createDirectory({ path: answer.path });
          onDone();
        }}
      >
        {field(says.folderName)}
      </Confirm>
    );
  }
  const { entry } = question;
  if (question.kind === "rename") {
    return (
      <Confirm
        title={says.renameTitle(plainText(entry.name))}
        action={says.rename}
        onClose={onClose}
        onConfirm={async () => {
          await client.movePath({ from: entry.path, to: answer.path });
          onDone();
        }}
      >
        {field(says.newName)}
      </Confirm>
    );
  }
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

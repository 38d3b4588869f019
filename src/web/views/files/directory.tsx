import { useSignal } from "@preact/signals";
import type { FileEntry } from "../../../../gen/svc/v1/file_pb.ts";
import { useAction } from "../../action.ts";
import type { Api } from "../../api.ts";
import type { NodeView } from "../../node-view.ts";
import { Failure } from "../../parts/failure.tsx";
import { Download, sizeAndTime } from "../../parts/file-table.tsx";
import { CheckField, bindCheckbox } from "../../parts/field.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { plainText } from "../../plain-text.ts";
import { fileTexts as labels } from "../../texts/files.ts";
import { FileDialog, isArchive, type Question } from "./file-dialog.tsx";
import { linkTo, type FileClient, type Listing } from "./paths.ts";
import { SearchFiles } from "./search-files.tsx";
import { UploadFiles } from "./upload-files.tsx";
import { Usage } from "./usage.tsx";

const { columns } = labels;

interface Props {
  api: Api;
  node: NodeView;
  client: FileClient;
  path: string;
  listing: Listing;
  onDone: () => void;
}

/** The entries of a directory, with their actions. */
export function Directory({ api, node, client, path, listing, onDone }: Props) {
  const isHiddenShown = useSignal(false);
  const isMeasured = useSignal(false);
  const question = useSignal<Question | undefined>(undefined);
  const { busy, failure, perform } = useAction();
  const shown = listing.entries.filter(({ name }) => isHiddenShown.value || !name.startsWith("."));
  const ask = (next: Question): void => void (question.value = next);
  const all: readonly Column<FileEntry>[] = [
    {
      title: columns.name,
      cell: ({ name, path: of, linkTarget }) => (
        <>
          <a href={linkTo(of)}>
            <Text of={name} />
          </a>{" "}
          {linkTarget !== undefined && <Text of={labels.linkTo(linkTarget)} />}
        </>
      ),
    },
    ...sizeAndTime,
    { title: columns.owner, kind: "word", cell: ({ owner, group }) => <Text of={`${owner}:${group}`} /> },
    { title: columns.mode, cell: ({ mode }) => <Text of={mode} /> },
    {
      title: columns.actions,
      kind: "actions",
      cell: (entry) => (
        <div class="buttons">
          {entry.type === "file" && (
            <Download
              {...{ busy, perform, path: entry.path, name: entry.name }}
              read={(signal) => client.readFile({ path: entry.path }, { signal })}
            />
          )}
          {(["rename", "copy", isArchive(entry) ? "unpack" : "pack"] as const).map((kind) => (
            <button key={kind} type="button" onClick={() => ask({ kind, entry })}>
              {labels[kind]}
            </button>
          ))}
          <button type="button" class="danger" onClick={() => ask({ kind: "remove", entry })}>
            {labels.remove}
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
          {labels.newFolder}
        </button>
        <CheckField label={labels.hidden} {...bindCheckbox(isHiddenShown)} />
      </div>
      <SearchFiles client={client} path={path} />
      <details onToggle={({ currentTarget }) => (isMeasured.value = currentTarget.open)}>
        <summary>{labels.usage}</summary>
        {isMeasured.value && (
          <section class="card" aria-label={labels.usage}>
            <Usage client={client} path={path} />
          </section>
        )}
      </details>
      <Failure message={failure} />
      {listing.isCut && <p class="notice">{labels.tooMany}</p>}
      <Table
        label={plainText(path)}
        rows={shown}
        keyOf={({ name }) => name}
        none={labels.empty}
        columns={all}
      />
      {question.value !== undefined && (
        <FileDialog
          client={client}
          operations={node.operations}
          path={path}
          question={question.value}
          onDone={onDone}
          onClose={() => (question.value = undefined)}
        />
      )}
    </>
  );
}

import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { SourceService, type Source } from "../../../../gen/svc/v1/source_pb.ts";
import { useForm } from "../../form.ts";
import { useLive } from "../../live.ts";
import { Confirm } from "../../parts/confirm.tsx";
import { Failure } from "../../parts/failure.tsx";
import { TextField } from "../../parts/field.tsx";
import { FormEnd } from "../../parts/form-end.tsx";
import { Heading } from "../../parts/heading.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { plainText } from "../../plain-text.ts";
import { texts } from "../../texts.ts";
import { packageTexts as labels } from "../../texts/packages.ts";
import type { ViewProps } from "../../view-props.ts";
import { Credentials } from "./credentials.tsx";

const { columns } = labels;

/** Package sources and credentials. Only root changes sources; credentials are per user. */
export function SourcesView({ api, node }: ViewProps) {
  const client = useMemo(() => api.client(SourceService), [api]);
  const live = useLive(node, [], (signal) => client.listSources({}, { signal }), [client]);
  const removed = useSignal<Source | undefined>(undefined);
  const isRoot = node.status.value?.caller?.root === true;
  const actions: Column<Source> = {
    title: columns.actions,
    kind: "actions",
    cell: (source) =>
      source.configured || source.shipped ? (
        labels[source.configured ? "configured" : "shipped"]
      ) : (
        <button type="button" class="danger" onClick={() => (removed.value = source)}>
          {labels.remove}
        </button>
      ),
  };
  const toRemove = removed.value;
  return (
    <>
      <Heading title={texts.sources.title} />
      <section aria-labelledby="sources">
        <h2 id="sources">{labels.sourcesTitle}</h2>
        <Failure message={live.failure} />
        {live.failure === "" && (
          <Table
            label={labels.sourcesTitle}
            rows={live.value?.sources}
            keyOf={({ name }) => name}
            none={labels.noSources}
            columns={isRoot ? [...sourceColumns, actions] : sourceColumns}
          />
        )}
        {isRoot && <AddSource client={client} onDone={live.reload} />}
      </section>
      <Credentials api={api} node={node} />
      {toRemove !== undefined && (
        <Confirm
          title={labels.removeSourceTitle(plainText(toRemove.name))}
          action={labels.remove}
          onClose={() => (removed.value = undefined)}
          onConfirm={async () => {
            await client.removeSource({ name: toRemove.name });
            live.reload();
          }}
        >
          <p>{labels.removeSourceLoses}</p>
        </Confirm>
      )}
    </>
  );
}

const sourceColumns: readonly Column<Source>[] = [
  { title: columns.name, cell: ({ name }) => <Text of={name} /> },
  { title: columns.url, cell: ({ url }) => <Text of={url} /> },
];

interface AddProps {
  client: { upsertSource: (source: { name: string; url: string; check: true }) => Promise<unknown> };
  onDone: () => void;
}

function AddSource({ client, onDone }: AddProps) {
  const form = useForm({ name: "", url: "" }, async ({ name, url }) => {
    await client.upsertSource({ name: name.trim(), url: url.trim(), check: true });
    onDone();
    return labels.saved;
  });
  return (
    <details>
      <summary>{labels.addSource}</summary>
      <form class="card settings" onSubmit={form.submit}>
        <TextField
          label={labels.sourceName}
          hint={labels.sourceNameHint}
          input={{ required: true }}
          {...form.of("name")}
        />
        <TextField
          label={labels.sourceUrl}
          hint={labels.sourceUrlHint}
          input={{ required: true }}
          {...form.of("url")}
        />
        <FormEnd form={form} action={labels.saveSource}>
          <span role="status">{form.notice}</span>
        </FormEnd>
      </form>
    </details>
  );
}

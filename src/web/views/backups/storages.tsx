import type { Client } from "@connectrpc/connect";
import { useSignal } from "@preact/signals";
import type { BackupService, BackupStorage } from "../../../../gen/svc/v1/backup_pb.ts";
import { useAction } from "../../action.ts";
import { useLive } from "../../live.ts";
import type { NodeView } from "../../node-view.ts";
import { Confirm } from "../../parts/confirm.tsx";
import { Failure } from "../../parts/failure.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { plainText, sentence } from "../../plain-text.ts";
import { backupTexts as labels } from "../../texts/backups.ts";
import { StorageForm } from "./storage-form.tsx";

const { columns } = labels;
/** The storage that always exists. */
const builtIn = "local";

/** The storages of backups. Root can test, add, change and remove them. */
export function Storages({ client, node }: { client: Client<typeof BackupService>; node: NodeView }) {
  const live = useLive(node, [], (signal) => client.listBackupStorages({}, { signal }), [client]);
  const { busy, failure, perform } = useAction();
  /** The storage in the form; `add` for a new one. */
  const edited = useSignal<BackupStorage | "add" | undefined>(undefined);
  const removed = useSignal<BackupStorage | undefined>(undefined);
  const verdicts = useSignal<Readonly<Record<string, string>>>({});
  const test = (name: string): Promise<void> =>
    perform(name, async (signal) => {
      const { checks } = await client.testBackupStorage({ name }, { signal });
      const wrong = checks.filter(({ ok }) => !ok).map((check) => `${check.name}: ${check.error}`);
      verdicts.value = { ...verdicts.value, [name]: wrong.join("; ") || labels.testOk };
    });
  const works: Column<BackupStorage> = {
    title: columns.works,
    cell: ({ name }) => (
      <>
        <button type="button" aria-busy={busy === name} onClick={() => void test(name)}>
          {labels.test}
        </button>{" "}
        <span role="status">
          <Text of={verdicts.value[name] ?? ""} />
        </span>
      </>
    ),
  };
  const actions: Column<BackupStorage> = {
    title: columns.actions,
    kind: "actions",
    cell: (storage) => (
      <div class="buttons">
        <button type="button" onClick={() => (edited.value = storage)}>
          {labels.changeStorage}
        </button>
        {storage.name !== builtIn && (
          <button type="button" class="danger" onClick={() => (removed.value = storage)}>
            {labels.removeStorage}
          </button>
        )}
      </div>
    ),
  };
  const toRemove = removed.value;
  const isRoot = node.status.value?.caller?.root === true;
  return (
    <section aria-labelledby="storages">
      <h2 id="storages">{labels.storages}</h2>
      <Failure message={live.failure} />
      <Failure message={failure} />
      {live.failure === "" && (
        <Table
          label={labels.storages}
          rows={live.value?.storages}
          keyOf={({ name }) => name}
          none={labels.noStorages}
          columns={isRoot ? [...storageColumns, works, actions] : storageColumns}
        />
      )}
      {isRoot && edited.value === undefined && (
        <button type="button" onClick={() => (edited.value = "add")}>
          {labels.addStorage}
        </button>
      )}
      {edited.value !== undefined && (
        <StorageForm
          key={edited.value === "add" ? "" : edited.value.name}
          client={client}
          before={edited.value === "add" ? undefined : edited.value}
          onSaved={live.reload}
          onClose={() => (edited.value = undefined)}
        />
      )}
      {toRemove !== undefined && (
        <Confirm
          title={labels.removeStorageTitle(plainText(toRemove.name))}
          action={labels.removeStorage}
          onClose={() => (removed.value = undefined)}
          onConfirm={async () => {
            await client.removeBackupStorage({ name: toRemove.name });
            live.reload();
          }}
        >
          <p>{labels.removeStorageLoses}</p>
        </Confirm>
      )}
    </section>
  );
}

const storageColumns: readonly Column<BackupStorage>[] = [
  { title: columns.name, cell: ({ name }) => <Text of={name} /> },
  {
    title: columns.kind,
    cell: ({ location, recipients, problem }) => (
      <>
        {problem !== "" && <Text of={sentence(problem)} />}
        {location.case !== undefined && labels.kinds[location.case]} <Text of={placeOf(location)} />
        {recipients.length > 0 && `, ${labels.encrypted}`}
      </>
    ),
  },
];

function placeOf(location: BackupStorage["location"]): string {
  if (location.case === "local") return location.value.dir;
  return location.case === "s3" ? `${location.value.bucket} ${location.value.endpoint}` : "";
}

import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { CredentialService, type Credential } from "../../../../gen/svc/v1/credential_pb.ts";
import { useForm } from "../../form.ts";
import { useLive } from "../../live.ts";
import { Confirm } from "../../parts/confirm.tsx";
import { Failure } from "../../parts/failure.tsx";
import { ChoiceField, TextField } from "../../parts/field.tsx";
import { FormEnd } from "../../parts/form-end.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { plainText } from "../../plain-text.ts";
import { packageTexts as labels } from "../../texts/packages.ts";
import type { ViewProps } from "../../view-props.ts";

const { columns } = labels;

/** Credentials for private hosts. Stored secrets are never shown. */
export function Credentials({ api, node }: Pick<ViewProps, "api" | "node">) {
  const client = useMemo(() => api.client(CredentialService), [api]);
  const live = useLive(node, [], (signal) => client.listCredentials({}, { signal }), [client]);
  const removed = useSignal<Credential | undefined>(undefined);
  const caller = node.status.value?.caller;
  const form = useForm(
    { name: "", kind: "git", host: "", username: "", secret: "" },
    async ({ name, host, ...draft }, set) => {
      await client.upsertCredential({ ...draft, name: name.trim(), host: host.trim() });
      set({ secret: "" });
      live.reload();
      return labels.saved;
    },
  );
  const actions: Column<Credential> = {
    title: columns.actions,
    kind: "actions",
    cell: (credential) => (
      <button type="button" class="danger" onClick={() => (removed.value = credential)}>
        {labels.remove}
      </button>
    ),
  };
  const toRemove = removed.value;
  return (
    <section aria-labelledby="credentials">
      <h2 id="credentials">{labels.credentials}</h2>
      <Failure message={live.failure} />
      {live.failure === "" && (
        <Table
          label={labels.credentials}
          rows={live.value?.credentials}
          keyOf={({ owner, name }) => `${String(owner)} ${name}`}
          none={labels.noCredentials}
          columns={[...credentialColumns, ...(caller?.root === true ? [ownerColumn] : []), actions]}
        />
      )}
      <details>
        <summary>{labels.addCredential}</summary>
        <form class="card settings" autocomplete="off" onSubmit={form.submit}>
          <TextField label={labels.credentialName} input={{ required: true }} {...form.of("name")} />
          <ChoiceField
            label={labels.credentialKind}
            choices={Object.entries(labels.kinds)}
            {...form.of("kind")}
          />
          <TextField
            label={labels.credentialHost}
            hint={labels.credentialHostHint}
            input={{ required: true }}
            {...form.of("host")}
          />
          <TextField label={labels.credentialUser} input={{ required: true }} {...form.of("username")} />
          <TextField
            label={labels.credentialSecret}
            hint={labels.credentialSecretHint}
            input={{ type: "password", required: true, autocomplete: "new-password" }}
            {...form.of("secret")}
          />
          <FormEnd form={form} action={labels.saveCredential}>
            <span role="status">{form.notice}</span>
          </FormEnd>
        </form>
      </details>
      {toRemove !== undefined && (
        <Confirm
          title={labels.removeCredentialTitle(plainText(toRemove.name))}
          action={labels.remove}
          onClose={() => (removed.value = undefined)}
          onConfirm={async () => {
            const { name, owner } = toRemove;
            await client.removeCredential({ name, ...(owner !== caller?.uid && { owner }) });
            live.reload();
          }}
        >
          <p>{labels.removeCredentialLoses}</p>
        </Confirm>
      )}
    </section>
  );
}

const credentialColumns: readonly Column<Credential>[] = [
  { title: columns.name, cell: ({ name }) => <Text of={name} /> },
  { title: columns.kind, cell: ({ kind }) => labels.kinds[kind] ?? kind },
  { title: columns.host, cell: ({ host }) => <Text of={host} /> },
  { title: columns.user, cell: ({ username }) => <Text of={username} /> },
  { title: columns.updated, cell: ({ updatedAt }) => <When at={updatedAt} /> },
];

const ownerColumn: Column<Credential> = { title: columns.owner, cell: ({ owner }) => String(owner) };

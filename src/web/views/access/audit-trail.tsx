import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { AuditService, type AuditRecord, type ListAuditResponse } from "../../../../gen/svc/v1/audit_pb.ts";
import { useAction } from "../../action.ts";
import { Failure } from "../../parts/failure.tsx";
import { TextField, typedInto } from "../../parts/field.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { sentence } from "../../plain-text.ts";
import { accessTexts as says } from "../../texts/access.ts";
import type { ViewProps } from "../../view-props.ts";

const { columns } = says;
const recordsAtOnce = 100;

/** Every change, newest first. */
export function AuditTrail({ api }: Pick<ViewProps, "api">) {
  const client = useMemo(() => api.client(AuditService), [api]);
  const [method, uid, target] = [useSignal(""), useSignal(""), useSignal("")];
  const page = useSignal<ListAuditResponse | undefined>(undefined);
  const verdict = useSignal("");
  const { busy, failure, perform } = useAction();
  const read = (pageToken = ""): Promise<void> =>
    perform("read", async (signal) => {
      const wanted = {
        limit: recordsAtOnce,
        pageToken,
        method: method.value.trim(),
        target: target.value.trim(),
        ...(uid.value !== "" && { uid: Number(uid.value) }),
      };
      page.value = await client.listAudit(wanted, { signal });
    });
  const verify = (): Promise<void> =>
    perform("verify", async (signal) => {
      const { valid, problem, records } = await client.verifyAudit({}, { signal });
      verdict.value = valid ? says.verified(String(records)) : sentence(problem);
    });
  useEffect(() => void read(), [client]);
  const next = page.value?.nextPageToken ?? "";
  return (
    <section aria-labelledby="audit">
      <h2 id="audit">{says.audit}</h2>
      <form
        class="card settings across"
        onSubmit={(event) => {
          event.preventDefault();
          void read();
        }}
      >
        <TextField label={says.method} hint={says.methodHint} {...typedInto(method)} />
        <TextField label={says.uid} {...typedInto(uid)} input={{ type: "number", min: 0, max: 4294967294 }} />
        <TextField label={says.target} {...typedInto(target)} />
        <div class="row">
          <button type="submit" aria-busy={busy === "read"}>
            {says.search}
          </button>
          <button type="button" aria-busy={busy === "verify"} onClick={() => void verify()}>
            {says.verify}
          </button>
          <span role="status">
            <Text of={verdict.value} />
          </span>
        </div>
      </form>
      <Failure says={failure} />
      {failure === "" && (
        <Table
          label={says.audit}
          rows={page.value?.records}
          keyOf={({ seq }) => String(seq)}
          none={says.none}
          columns={recordColumns}
        />
      )}
      <div class="row">
        <button type="button" onClick={() => void read()}>
          {says.newest}
        </button>
        {next !== "" && (
          <button type="button" onClick={() => void read(next)}>
            {says.older}
          </button>
        )}
      </div>
    </section>
  );
}

const recordColumns: readonly Column<AuditRecord>[] = [
  { title: columns.when, cell: ({ time }) => <When isExact at={time} /> },
  {
    title: columns.who,
    kind: "word",
    cell: ({ user, uid, address }) => <Text of={user || address || String(uid)} />,
  },
  { title: columns.by, cell: ({ kind }) => says.kinds[kind] ?? kind },
  {
    title: columns.what,
    kind: "word",
    cell: ({ method }) => <Text of={method.replace(/^svc\.v1\./, "").replace("Service/", " ")} />,
  },
  { title: columns.target, cell: ({ target }) => <Text of={target} /> },
  { title: columns.result, kind: "word", cell: ({ result, reason }) => <Text of={reason || result} /> },
  { title: columns.times, kind: "figure", cell: ({ attempts }) => (attempts > 1 ? String(attempts) : "") },
  { title: columns.via, kind: "word", cell: ({ protocol }) => <Text of={protocol} /> },
];

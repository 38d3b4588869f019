import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { AuditService, type AuditRecord, type ListAuditResponse } from "../../../../gen/svc/v1/audit_pb.ts";
import { useAction } from "../../action.ts";
import { Failure } from "../../parts/failure.tsx";
import { TextField, bindText } from "../../parts/field.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { sentence } from "../../plain-text.ts";
import { accessTexts as labels } from "../../texts/access.ts";
import type { ViewProps } from "../../view-props.ts";

const { columns } = labels;
const recordsAtOnce = 100;

/** Audit records, newest first. */
export function AuditTrail({ api }: Pick<ViewProps, "api">) {
  const client = useMemo(() => api.client(AuditService), [api]);
  const [method, uid, target] = [useSignal(""), useSignal(""), useSignal("")];
  const page = useSignal<ListAuditResponse | undefined>(undefined);
  const verdict = useSignal("");
  const { busy, failure, perform } = useAction();
  const read = (pageToken = ""): Promise<void> =>
    perform("read", async (signal) => {
      const request = {
        limit: recordsAtOnce,
        pageToken,
        method: method.value.trim(),
        target: target.value.trim(),
        ...(uid.value !== "" && { uid: Number(uid.value) }),
      };
      page.value = await client.listAudit(request, { signal });
    });
  const verify = (): Promise<void> =>
    perform("verify", async (signal) => {
      const { valid, problem, records } = await client.verifyAudit({}, { signal });
      verdict.value = valid ? labels.verified(String(records)) : sentence(problem);
    });
  useEffect(() => void read(), [client]);
  const next = page.value?.nextPageToken ?? "";
  return (
    <section aria-labelledby="audit">
      <h2 id="audit">{labels.audit}</h2>
      <form
        class="card settings across"
        onSubmit={(event) => {
          event.preventDefault();
          void read();
        }}
      >
        <TextField label={labels.method} hint={labels.methodHint} {...bindText(method)} />
        <TextField
          label={labels.uid}
          {...bindText(uid)}
          input={{ type: "number", min: 0, max: 4294967294 }}
        />
        <TextField label={labels.target} {...bindText(target)} />
        <div class="row">
          <button type="submit" aria-busy={busy === "read"}>
            {labels.search}
          </button>
          <button type="button" aria-busy={busy === "verify"} onClick={() => void verify()}>
            {labels.verify}
          </button>
          <span role="status">
            <Text of={verdict.value} />
          </span>
        </div>
      </form>
      <Failure message={failure} />
      {failure === "" && (
        <Table
          label={labels.audit}
          rows={page.value?.records}
          keyOf={({ seq }) => String(seq)}
          none={labels.none}
          columns={recordColumns}
        />
      )}
      <div class="row">
        <button type="button" onClick={() => void read()}>
          {labels.newest}
        </button>
        {next !== "" && (
          <button type="button" onClick={() => void read(next)}>
            {labels.older}
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
  { title: columns.by, cell: ({ kind }) => labels.kinds[kind] ?? kind },
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

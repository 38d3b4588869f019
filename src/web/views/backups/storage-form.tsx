import type { Client } from "@connectrpc/connect";
import type { BackupService, BackupStorage } from "../../../../gen/svc/v1/backup_pb.ts";
import { useForm } from "../../form.ts";
import { Failure } from "../../parts/failure.tsx";
import { CheckField, ChoiceField, TextField } from "../../parts/field.tsx";
import { backupTexts as says } from "../../texts/backups.ts";

/** What stands for a secret that was written before. */
const kept = "***";

interface Props {
  client: Client<typeof BackupService>;
  /** The one that is changed; a new one is made without. */
  before: BackupStorage | undefined;
  onDone: () => void;
}

/** A place for backups. The keys of a bucket go in, and never come back. */
export function StorageForm({ client, before, onDone }: Props) {
  const { location } = before ?? {};
  const bucket = location?.case === "s3" ? location.value : undefined;
  const form = useForm(
    {
      name: before?.name ?? "",
      kind: location?.case ?? "s3",
      dir: location?.case === "local" ? location.value.dir : "",
      endpoint: bucket?.endpoint ?? "",
      region: bucket?.region ?? "",
      bucket: bucket?.bucket ?? "",
      prefix: bucket?.prefix ?? "",
      accessKey: "",
      secretKey: "",
      pathStyle: bucket?.pathStyle ?? true,
      recipients: before?.recipients.join(", ") ?? "",
    },
    async ({ name, kind, dir, recipients, accessKey, secretKey, ...s3 }, set) => {
      const keyOf = (typed: string): string => (typed === "" && bucket !== undefined ? kept : typed);
      await client.upsertBackupStorage({
        name: name.trim(),
        ...(before?.managedBy !== undefined && { managedBy: before.managedBy }),
        ...(before?.maxBytesPerSec !== undefined && { maxBytesPerSec: before.maxBytesPerSec }),
        recipients: recipients
          .split(",")
          .map((key) => key.trim())
          .filter((key) => key !== ""),
        location:
          kind === "local"
            ? { case: "local", value: { dir: dir.trim() } }
            : {
                case: "s3",
                value: {
                  ...s3,
                  accessKey: keyOf(accessKey),
                  secretKey: keyOf(secretKey),
                  ...(bucket !== undefined && { ca: bucket.ca }),
                },
              },
      });
      set({ accessKey: "", secretKey: "" });
      onDone();
      return "";
    },
  );
  const { kind, pathStyle } = form.draft;
  const keyHint = bucket === undefined ? says.keyHint : says.keyKept;
  const secret = {
    type: "password" as const,
    autocomplete: "new-password" as const,
    required: bucket === undefined,
  };
  return (
    <form class="card settings" autocomplete="off" onSubmit={form.submit}>
      {before === undefined && (
        <>
          <TextField label={says.storageName} input={{ required: true }} {...form.of("name")} />
          <ChoiceField label={says.columns.kind} choices={Object.entries(says.kinds)} {...form.of("kind")} />
        </>
      )}
      {kind === "local" ? (
        <TextField label={says.dir} input={{ required: true }} {...form.of("dir", "local.dir")} />
      ) : (
        <>
          <TextField
            label={says.endpoint}
            input={{ type: "url", required: true }}
            {...form.of("endpoint", "s3.endpoint")}
          />
          <TextField label={says.bucket} input={{ required: true }} {...form.of("bucket", "s3.bucket")} />
          <TextField label={says.region} {...form.of("region", "s3.region")} />
          <TextField label={says.prefix} hint={says.prefixHint} {...form.of("prefix", "s3.prefix")} />
          <TextField
            label={says.accessKey}
            hint={keyHint}
            input={secret}
            {...form.of("accessKey", "s3.access_key")}
          />
          <TextField
            label={says.secretKey}
            hint={keyHint}
            input={secret}
            {...form.of("secretKey", "s3.secret_key")}
          />
          <CheckField
            label={says.pathStyle}
            value={pathStyle}
            onCheck={(value) => form.set({ pathStyle: value })}
          />
        </>
      )}
      <TextField label={says.recipients} hint={says.recipientsHint} {...form.of("recipients")} />
      <Failure says={form.general} />
      <div class="row">
        <button type="submit" aria-busy={form.isBusy}>
          {says.saveStorage}
        </button>
        <button type="button" onClick={onDone}>
          {says.policyLeave}
        </button>
      </div>
    </form>
  );
}

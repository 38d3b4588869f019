import type { Client } from "@connectrpc/connect";
import type { BackupService, BackupStorage } from "../../../../gen/svc/v1/backup_pb.ts";
import { isAmazon } from "../../../lib/amazon.ts";
import { useForm } from "../../form.ts";
import { CheckField, ChoiceField, TextField } from "../../parts/field.tsx";
import { FormEnd } from "../../parts/form-end.tsx";
import { ToldError } from "../../told-error.ts";
import { namesIn } from "../../typed-names.ts";
import { backupTexts as says } from "../../texts/backups.ts";

interface Props {
  client: Client<typeof BackupService>;
  /** The one that is changed; a new one is made without. */
  before: BackupStorage | undefined;
  onSaved: () => void;
  onClose: () => void;
}

/** A place for backups. The keys of a bucket go in, and never come back. */
export function StorageForm({ client, before, onSaved, onClose }: Props) {
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
      /** As the daemon has it where nobody said. */
      pathStyle: bucket?.pathStyle,
      recipients: before?.recipients.join(", ") ?? "",
    },
    async ({ name: typed, kind, dir, recipients, accessKey, secretKey, pathStyle, ...s3 }, set, signal) => {
      const name = typed.trim();
      if (before === undefined) {
        const { storages } = await client.listBackupStorages({}, { signal });
        if (storages.some((storage) => storage.name === name)) throw new ToldError(says.storageThere(name));
      }
      await client.upsertBackupStorage({
        name,
        ...(before?.managedBy !== undefined && { managedBy: before.managedBy }),
        ...(before?.maxBytesPerSec !== undefined && { maxBytesPerSec: before.maxBytesPerSec }),
        recipients: namesIn(recipients),
        location:
          kind === "local"
            ? { case: "local", value: { dir: dir.trim() } }
            : {
                case: "s3",
                value: {
                  ...s3,
                  // What is left out stays as it is.
                  ...(accessKey !== "" && { accessKey }),
                  ...(secretKey !== "" && { secretKey }),
                  ...(pathStyle !== undefined && { pathStyle }),
                  ...(bucket !== undefined && { ca: bucket.ca }),
                },
              },
      });
      set({ accessKey: "", secretKey: "" });
      onSaved();
      return "";
    },
    onClose,
  );
  const { kind, endpoint, pathStyle = !isAmazon(endpoint) } = form.draft;
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
      <FormEnd form={form} action={says.saveStorage}>
        <button type="button" onClick={onClose}>
          {says.policyLeave}
        </button>
      </FormEnd>
    </form>
  );
}

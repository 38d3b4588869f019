import type { Client } from "@connectrpc/connect";
import type { BackupService, BackupStorage } from "../../../../gen/svc/v1/backup_pb.ts";
import { isAmazon } from "../../../lib/amazon.ts";
import { useForm } from "../../form.ts";
import { CheckField, ChoiceField, TextField } from "../../parts/field.tsx";
import { FormEnd } from "../../parts/form-end.tsx";
import { UserFacingError } from "../../user-facing-error.ts";
import { namesIn } from "../../names.ts";
import { backupTexts as labels } from "../../texts/backups.ts";

interface Props {
  client: Client<typeof BackupService>;
  /** The storage to change; undefined to add one. */
  before: BackupStorage | undefined;
  onSaved: () => void;
  onClose: () => void;
}

/** A form for a storage. Stored keys of a bucket are never shown. */
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
      /** Undefined: the daemon's default. */
      pathStyle: bucket?.pathStyle,
      recipients: before?.recipients.join(", ") ?? "",
    },
    async ({ name: typed, kind, dir, recipients, accessKey, secretKey, pathStyle, ...s3 }, set, signal) => {
      const name = typed.trim();
      if (before === undefined) {
        const { storages } = await client.listBackupStorages({}, { signal });
        if (storages.some((storage) => storage.name === name))
          throw new UserFacingError(labels.storageThere(name));
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
                  // Omitted fields stay unchanged.
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
  const keyHint = bucket === undefined ? labels.keyHint : labels.keyKept;
  const secret = {
    type: "password" as const,
    autocomplete: "new-password" as const,
    required: bucket === undefined,
  };
  return (
    <form class="card settings" autocomplete="off" onSubmit={form.submit}>
      {before === undefined && (
        <>
          <TextField label={labels.storageName} input={{ required: true }} {...form.of("name")} />
          <ChoiceField
            label={labels.columns.kind}
            choices={Object.entries(labels.kinds)}
            {...form.of("kind")}
          />
        </>
      )}
      {kind === "local" ? (
        <TextField label={labels.dir} input={{ required: true }} {...form.of("dir", "local.dir")} />
      ) : (
        <>
          <TextField
            label={labels.endpoint}
            input={{ type: "url", required: true }}
            {...form.of("endpoint", "s3.endpoint")}
          />
          <TextField label={labels.bucket} input={{ required: true }} {...form.of("bucket", "s3.bucket")} />
          <TextField label={labels.region} {...form.of("region", "s3.region")} />
          <TextField label={labels.prefix} hint={labels.prefixHint} {...form.of("prefix", "s3.prefix")} />
          <TextField
            label={labels.accessKey}
            hint={keyHint}
            input={secret}
            {...form.of("accessKey", "s3.access_key")}
          />
          <TextField
            label={labels.secretKey}
            hint={keyHint}
            input={secret}
            {...form.of("secretKey", "s3.secret_key")}
          />
          <CheckField
            label={labels.pathStyle}
            value={pathStyle}
            onCheck={(value) => form.set({ pathStyle: value })}
          />
        </>
      )}
      <TextField label={labels.recipients} hint={labels.recipientsHint} {...form.of("recipients")} />
      <FormEnd form={form} action={labels.saveStorage}>
        <button type="button" onClick={onClose}>
          {labels.policyLeave}
        </button>
      </FormEnd>
    </form>
  );
}

import type { Client } from "@connectrpc/connect";
import { useSignal } from "@preact/signals";
import type { BackupPolicy, BackupService } from "../../../../gen/svc/v1/backup_pb.ts";
import { useForm } from "../../form.ts";
import { Facts } from "../../parts/facts.tsx";
import { CheckField, ChoiceField, TextField } from "../../parts/field.tsx";
import { FormEnd } from "../../parts/form-end.tsx";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { sentence } from "../../plain-text.ts";
import { namesIn } from "../../names.ts";
import { backupTexts as labels } from "../../texts/backups.ts";

interface Props {
  client: Client<typeof BackupService>;
  appId: string;
  of: BackupPolicy;
  onDone: () => void;
}

/** An app's backup policy, with a form to change it. */
export function Policy({ client, appId, of, onDone }: Props) {
  const { fromPackage, trigger, storages, nextRunAt, lastError } = of;
  const isOpen = useSignal(false);
  return (
    <Facts
      title={labels.policy}
      facts={[
        [labels.policyWhen, trigger === "" ? labels.policyNever : <Text key="when" of={trigger} />],
        [labels.policyFrom, fromPackage ? labels.policyPackage : labels.policyUser],
        [
          labels.policyStorages,
          storages.length === 0 ? labels.policyLocal : <Text key="storages" of={storages.join(", ")} />,
        ],
        [labels.policyVerifies, of.verify ? labels.policyVerified : labels.policyNotVerified],
        [labels.policyKeeps, retentionOf(of)],
        [labels.policyMode, labels.policyModes.find(([mode]) => mode === of.mode)?.[1] ?? ""],
        [labels.policyNext, nextRunAt && <When key="next" at={nextRunAt} />],
        [labels.policyError, lastError && <Text key="error" of={sentence(lastError)} />],
      ]}
    >
      {isOpen.value ? (
        <PolicyForm
          client={client}
          appId={appId}
          of={of}
          onDone={onDone}
          onClose={() => (isOpen.value = false)}
        />
      ) : (
        <button type="button" onClick={() => (isOpen.value = true)}>
          {labels.policyChange}
        </button>
      )}
    </Facts>
  );
}

function retentionOf({ keep, keepDaily, keepWeekly, keepMonthly }: BackupPolicy): string {
  const parts = labels.policyKept({ keep, keepDaily, keepWeekly, keepMonthly });
  return parts === "" ? labels.policyKeepsAll : parts;
}

function PolicyForm({ client, appId, of, onDone, onClose }: Props & { onClose: () => void }) {
  const form = useForm(
    {
      // A change replaces the package's recommendation.
      fromPackage: false,
      trigger: of.trigger,
      storages: of.storages.join(", "),
      keep: text(of.keep),
      keepDaily: text(of.keepDaily),
      keepWeekly: text(of.keepWeekly),
      keepMonthly: text(of.keepMonthly),
      mode: of.mode || "live",
      verify: of.verify,
      catchUp: of.catchUp === "latest",
    },
    async ({ fromPackage, trigger, storages, mode, verify, catchUp, ...retention }) => {
      await client.setBackupPolicy({
        appId,
        fromPackage,
        ...(!fromPackage && {
          ...{ trigger: trigger.trim(), mode, verify, catchUp: catchUp ? "latest" : "none" },
          storages: namesIn(storages),
          ...Object.fromEntries(
            Object.entries(retention).flatMap(([key, typed]) => (typed === "" ? [] : [[key, Number(typed)]])),
          ),
        }),
      });
      onDone();
      return labels.policySaved;
    },
    onClose,
  );
  const { fromPackage, verify, catchUp } = form.draft;
  const number = { type: "number" as const, min: 1, max: 100_000 };
  return (
    <form class="settings" onSubmit={form.submit}>
      <CheckField
        label={labels.policyAsPackage}
        value={fromPackage}
        onCheck={(value) => form.set({ fromPackage: value })}
      />
      {!fromPackage && (
        <>
          <TextField label={labels.policyWhen} hint={labels.policyWhenHint} {...form.of("trigger")} />
          <TextField
            label={labels.policyStorages}
            hint={labels.policyStoragesHint}
            {...form.of("storages")}
          />
          <TextField
            label={labels.policyKeep}
            hint={labels.policyKeepHint}
            input={number}
            {...form.of("keep")}
          />
          <TextField label={labels.policyKeepDaily} input={number} {...form.of("keepDaily", "keep_daily")} />
          <TextField
            label={labels.policyKeepWeekly}
            input={number}
            {...form.of("keepWeekly", "keep_weekly")}
          />
          <TextField
            label={labels.policyKeepMonthly}
            input={number}
            {...form.of("keepMonthly", "keep_monthly")}
          />
          <ChoiceField label={labels.policyMode} choices={labels.policyModes} {...form.of("mode")} />
          <CheckField
            label={labels.policyVerify}
            value={verify}
            onCheck={(value) => form.set({ verify: value })}
          />
          <CheckField
            label={labels.policyCatchUp}
            value={catchUp}
            onCheck={(value) => form.set({ catchUp: value })}
          />
        </>
      )}
      <FormEnd form={form} action={labels.policySave}>
        <button type="button" onClick={onClose}>
          {labels.policyLeave}
        </button>
      </FormEnd>
    </form>
  );
}

function text(value: number | undefined): string {
  return value === undefined ? "" : String(value);
}

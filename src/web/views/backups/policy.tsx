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
import { namesIn } from "../../typed-names.ts";
import { backupTexts as says } from "../../texts/backups.ts";

interface Props {
  client: Client<typeof BackupService>;
  appId: string;
  of: BackupPolicy;
  onDone: () => void;
}

/** When an app is backed up by itself; a form changes it. */
export function Policy({ client, appId, of, onDone }: Props) {
  const { fromPackage, trigger, storages, nextRunAt, lastError } = of;
  const isOpen = useSignal(false);
  return (
    <Facts
      title={says.policy}
      facts={[
        [says.policyWhen, trigger === "" ? says.policyNever : <Text key="when" of={trigger} />],
        [says.policyFrom, fromPackage ? says.policyPackage : says.policyUser],
        [says.policyStorages, storages.length === 0 ? "" : <Text key="storages" of={storages.join(", ")} />],
        [says.policyKeeps, keptOf(of)],
        [says.policyMode, says.policyModes.find(([mode]) => mode === of.mode)?.[1] ?? ""],
        [says.policyNext, nextRunAt && <When key="next" at={nextRunAt} />],
        [says.policyError, lastError && <Text key="error" of={sentence(lastError)} />],
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
          {says.policyChange}
        </button>
      )}
    </Facts>
  );
}

function keptOf({ keep, keepDaily, keepWeekly, keepMonthly }: BackupPolicy): string {
  const parts = says.policyKept({ keep, keepDaily, keepWeekly, keepMonthly });
  return parts === "" ? says.policyKeepsAll : parts;
}

function PolicyForm({ client, appId, of, onDone, onClose }: Props & { onClose: () => void }) {
  const form = useForm(
    {
      // Whoever wants to change it chooses.
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
    async ({ fromPackage, trigger, storages, mode, verify, catchUp, ...kept }) => {
      await client.setBackupPolicy({
        appId,
        fromPackage,
        ...(!fromPackage && {
          ...{ trigger: trigger.trim(), mode, verify, catchUp: catchUp ? "latest" : "none" },
          storages: namesIn(storages),
          ...Object.fromEntries(
            Object.entries(kept).flatMap(([key, typed]) => (typed === "" ? [] : [[key, Number(typed)]])),
          ),
        }),
      });
      onDone();
      return says.policySaved;
    },
    onClose,
  );
  const { fromPackage, verify, catchUp } = form.draft;
  const number = { type: "number" as const, min: 1, max: 100_000 };
  return (
    <form class="settings" onSubmit={form.submit}>
      <CheckField
        label={says.policyAsPackage}
        value={fromPackage}
        onCheck={(value) => form.set({ fromPackage: value })}
      />
      {!fromPackage && (
        <>
          <TextField label={says.policyWhen} hint={says.policyWhenHint} {...form.of("trigger")} />
          <TextField label={says.policyStorages} hint={says.policyStoragesHint} {...form.of("storages")} />
          <TextField label={says.policyKeep} hint={says.policyKeepHint} input={number} {...form.of("keep")} />
          <TextField label={says.policyKeepDaily} input={number} {...form.of("keepDaily", "keep_daily")} />
          <TextField label={says.policyKeepWeekly} input={number} {...form.of("keepWeekly", "keep_weekly")} />
          <TextField
            label={says.policyKeepMonthly}
            input={number}
            {...form.of("keepMonthly", "keep_monthly")}
          />
          <ChoiceField label={says.policyMode} choices={says.policyModes} {...form.of("mode")} />
          <CheckField
            label={says.policyVerify}
            value={verify}
            onCheck={(value) => form.set({ verify: value })}
          />
          <CheckField
            label={says.policyCatchUp}
            value={catchUp}
            onCheck={(value) => form.set({ catchUp: value })}
          />
        </>
      )}
      <FormEnd form={form} action={says.policySave}>
        <button type="button" onClick={onClose}>
          {says.policyLeave}
        </button>
      </FormEnd>
    </form>
  );
}

function text(value: number | undefined): string {
  return value === undefined ? "" : String(value);
}

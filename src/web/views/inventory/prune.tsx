import type { Client } from "@connectrpc/connect";
import { useSignal, type Signal } from "@preact/signals";
import {
  PruneDockerResponseSchema,
  type DockerService,
  type PruneDockerResponse,
} from "../../../../gen/svc/v1/docker_pb.ts";
import { useAction } from "../../action.ts";
import type { NodeView } from "../../node-view.ts";
import { Confirm } from "../../parts/confirm.tsx";
import { Failure } from "../../parts/failure.tsx";
import { CheckField } from "../../parts/field.tsx";
import { Text } from "../../parts/text.tsx";
import { inventoryTexts as labels } from "../../texts/inventory.ts";
import { formatBytes } from "../../units.ts";

interface Props {
  client: Client<typeof DockerService>;
  node: NodeView;
  target: "images" | "volumes" | "build_cache";
  onDone: () => void;
}

/** Lists unused objects, and removes the selected ones. */
export function Prune({ client, node, target, onDone }: Props) {
  const plan = useSignal<PruneDockerResponse | undefined>(undefined);
  /** IDs of the selected items. */
  const ticked = useSignal<ReadonlySet<string>>(new Set());
  const notice = useSignal("");
  const { busy, failure, perform } = useAction();
  const options = { target, danglingOnly: false };
  const loadPlan = (): Promise<void> =>
    perform("plan", async (signal) => {
      notice.value = "";
      const found = await client.pruneDocker({ ...options, dryRun: true }, { signal });
      ticked.value = new Set();
      if (found.removed.length > 0) plan.value = found;
      else notice.value = labels.planNone;
    });
  const planned = plan.value;
  return (
    <div class="row">
      <button type="button" aria-busy={busy === "plan"} onClick={() => void loadPlan()}>
        {labels.plan[target]}
      </button>
      <span role="status">{notice.value}</span>
      <Failure message={failure} />
      {planned !== undefined && (
        <Confirm
          title={labels.planTitle[target]}
          action={labels.prune}
          isReady={ticked.value.size > 0}
          onClose={() => (plan.value = undefined)}
          onConfirm={async (signal) => {
            const request = { ...options, ids: [...ticked.value], detach: true };
            const started = await client.pruneDocker(request, { signal });
            const { removed, freedBytes } = await node.operations.finish(
              started,
              PruneDockerResponseSchema,
              signal,
            );
            notice.value = labels.pruned(removed.length, formatBytes(freedBytes));
            onDone();
          }}
        >
          <Plan of={planned} title={labels.planTitle[target]} ticked={ticked} />
          <p>
            <strong>{labels.planLoses[target]}</strong>
          </p>
        </Confirm>
      )}
    </div>
  );
}

interface PlanProps {
  of: PruneDockerResponse;
  title: string;
  ticked: Signal<ReadonlySet<string>>;
}

function Plan({ of: { removed, skipped }, title, ticked }: PlanProps) {
  const chosen = removed.filter(({ id }) => ticked.value.has(id));
  const tick = (id: string, isTicked: boolean): void => {
    const others = [...ticked.value].filter((other) => other !== id);
    ticked.value = new Set(isTicked ? [...others, id] : others);
  };
  return (
    <>
      <CheckField
        label={labels.planAll(removed.length)}
        value={chosen.length === removed.length}
        onCheck={(all) => (ticked.value = new Set(all ? removed.map(({ id }) => id) : []))}
      />
      <ul class="plan" aria-label={title}>
        {removed.map(({ id, name, sizeBytes }) => (
          <li key={id}>
            <CheckField
              label={
                <>
                  <Text of={name || id} /> <span class="quiet">{formatBytes(sizeBytes)}</span>
                </>
              }
              value={ticked.value.has(id)}
              onCheck={(isTicked) => tick(id, isTicked)}
            />
          </li>
        ))}
      </ul>
      <p role="status">
        {labels.planRemoves(
          chosen.length,
          formatBytes(chosen.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0n)),
        )}
      </p>
      {skipped.length > 0 && (
        <details>
          <summary>{labels.planKeeps}</summary>
          <ul>
            {skipped.map(({ id, name, reason }) => (
              <li key={id}>
                <Text of={name || id} />: <Text of={reason} />
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

import type { Client } from "@connectrpc/connect";
import { useSignal, type Signal } from "@preact/signals";
import type { DockerService, PruneDockerResponse } from "../../../../gen/svc/v1/docker_pb.ts";
import { useAction } from "../../action.ts";
import { Confirm } from "../../parts/confirm.tsx";
import { Failure } from "../../parts/failure.tsx";
import { CheckField } from "../../parts/field.tsx";
import { Text } from "../../parts/text.tsx";
import { inventoryTexts as says } from "../../texts/inventory.ts";
import { formatBytes } from "../../units.ts";

interface Props {
  client: Client<typeof DockerService>;
  target: "images" | "volumes" | "build_cache";
  onDone: () => void;
}

/** What nothing needs, and of it what one has ticked, is removed. */
export function Prune({ client, target, onDone }: Props) {
  const plan = useSignal<PruneDockerResponse | undefined>(undefined);
  /** Ids. */
  const ticked = useSignal<ReadonlySet<string>>(new Set());
  const said = useSignal("");
  const { busy, failure, perform } = useAction();
  const wanted = { target, danglingOnly: false };
  const look = (): Promise<void> =>
    perform("look", async (signal) => {
      said.value = "";
      const found = await client.pruneDocker({ ...wanted, dryRun: true }, { signal });
      ticked.value = new Set();
      if (found.removed.length > 0) plan.value = found;
      else said.value = says.planNone;
    });
  const planned = plan.value;
  return (
    <div class="row">
      <button type="button" aria-busy={busy === "look"} onClick={() => void look()}>
        {says.plan[target]}
      </button>
      <span role="status">{said.value}</span>
      <Failure says={failure} />
      {planned !== undefined && (
        <Confirm
          title={says.planTitle[target]}
          action={says.prune}
          isReady={ticked.value.size > 0}
          onClose={() => (plan.value = undefined)}
          onConfirm={async () => {
            const { removed, freedBytes } = await client.pruneDocker({ ...wanted, ids: [...ticked.value] });
            said.value = says.pruned(removed.length, formatBytes(freedBytes));
            onDone();
          }}
        >
          <Plan of={planned} title={says.planTitle[target]} ticked={ticked} />
          <p>
            <strong>{says.planLoses[target]}</strong>
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
        label={says.planAll(removed.length)}
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
        {says.planRemoves(
          chosen.length,
          formatBytes(chosen.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0n)),
        )}
      </p>
      {skipped.length > 0 && (
        <details>
          <summary>{says.planKeeps}</summary>
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

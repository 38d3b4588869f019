import type { Client } from "@connectrpc/connect";
import { useSignal } from "@preact/signals";
import type { DockerService, PruneDockerResponse } from "../../../../gen/svc/v1/docker_pb.ts";
import { useAction } from "../../action.ts";
import { Confirm } from "../../parts/confirm.tsx";
import { Failure } from "../../parts/failure.tsx";
import { Text } from "../../parts/text.tsx";
import { inventoryTexts as says } from "../../texts/inventory.ts";
import { ToldError } from "../../told-error.ts";
import { formatBytes } from "../../units.ts";

interface Props {
  client: Client<typeof DockerService>;
  target: "images" | "volumes";
  onDone: () => void;
}

/** What nothing needs is removed once one has read which that is. */
export function Prune({ client, target, onDone }: Props) {
  const plan = useSignal<PruneDockerResponse | undefined>(undefined);
  const said = useSignal("");
  const { busy, failure, perform } = useAction();
  const wanted = { target, danglingOnly: false };
  const look = (): Promise<void> =>
    perform("look", async (signal) => {
      said.value = "";
      const found = await client.pruneDocker({ ...wanted, dryRun: true }, { signal });
      if (found.removed.length > 0) plan.value = found;
      else said.value = says.planNone;
    });
  const planned = plan.value;
  return (
    <div class="row">
      <button type="button" aria-busy={busy === "look"} onClick={() => void look()}>
        {says.plan}
      </button>
      <span role="status">{said.value}</span>
      <Failure says={failure} />
      {planned !== undefined && (
        <Confirm
          title={says.planTitle[target]}
          action={says.prune}
          onClose={() => (plan.value = undefined)}
          onConfirm={async () => {
            const now = await client.pruneDocker({ ...wanted, dryRun: true });
            const read = new Set(planned.removed.map(({ id }) => id));
            if (now.removed.some(({ id }) => !read.has(id))) {
              plan.value = now;
              throw new ToldError(says.planChanged);
            }
            const { removed, freedBytes } = await client.pruneDocker(wanted);
            said.value = says.pruned(removed.length, formatBytes(freedBytes));
            onDone();
          }}
        >
          <p>{says.planRemoves(planned.removed.length, formatBytes(planned.freedBytes))}</p>
          <ul class="plan" tabIndex={0} aria-label={says.planTitle[target]}>
            {planned.removed.map(({ id, name, sizeBytes }) => (
              <li key={id}>
                <Text of={name || id} /> <span class="quiet">{formatBytes(sizeBytes)}</span>
              </li>
            ))}
          </ul>
          <p>
            <strong>{says.planLoses[target]}</strong>
          </p>
          {planned.skipped.length > 0 && (
            <details>
              <summary>{says.planKeeps}</summary>
              <ul>
                {planned.skipped.map(({ id, name, reason }) => (
                  <li key={id}>
                    <Text of={name || id} />: <Text of={reason} />
                  </li>
                ))}
              </ul>
            </details>
          )}
        </Confirm>
      )}
    </div>
  );
}

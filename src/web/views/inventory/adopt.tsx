import type { Client } from "@connectrpc/connect";
import { useSignal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import {
  AdoptStackResponseSchema,
  type AdoptionPlan,
  type DockerService,
} from "../../../../gen/svc/v1/docker_pb.ts";
import { useAction } from "../../action.ts";
import { useLongWork } from "../../long-work.ts";
import type { NodeView } from "../../node-view.ts";
import { Confirm } from "../../parts/confirm.tsx";
import { Failure } from "../../parts/failure.tsx";
import { CancelWork, Work } from "../../parts/work.tsx";
import { Text } from "../../parts/text.tsx";
import { plainText } from "../../plain-text.ts";
import { pathTo } from "../../route.ts";
import { inventoryTexts } from "../../texts/inventory.ts";

const labels = inventoryTexts.adoption;

interface Props {
  client: Client<typeof DockerService>;
  node: NodeView;
  /** The chosen compose project or container; empty for none. */
  name: Signal<string>;
}

/** Shows the plan of an adoption, asks, and follows the work. */
export function Adopt({ client, node, name }: Props) {
  const plan = useSignal<AdoptionPlan | undefined>(undefined);
  const confirmed = useSignal({ name: "", planDigest: "" });
  const { busy, failure, perform } = useAction();
  const work = useLongWork(
    node.operations,
    AdoptStackResponseSchema,
    (accepted, signal) => client.adoptStack({ ...confirmed.value, ...accepted, detach: true }, { signal }),
    ({ app }) => (location.hash = pathTo("apps", app?.id ?? "")),
  );
  useEffect(() => {
    if (name.value === "") return;
    void perform("plan", async (signal) => {
      plan.value = (await client.adoptStack({ name: name.value, dryRun: true }, { signal })).plan;
    }).then(() => {
      if (plan.value === undefined) name.value = "";
    });
  }, [name.value]);
  const planned = plan.value;
  const close = (): void => {
    plan.value = undefined;
    name.value = "";
  };
  return (
    <>
      {busy !== "" && <p role="status">{labels.planning}</p>}
      <Failure message={failure} />
      <Work of={work} />
      {work.isBusy && <CancelWork of={work} />}
      {planned !== undefined && (
        <Confirm
          title={labels.title(plainText(planned.stack?.name ?? ""))}
          action={labels.confirm}
          onClose={close}
          onConfirm={() => {
            if (!work.mayStart()) return Promise.resolve();
            confirmed.value = { name: planned.stack?.name ?? "", planDigest: planned.digest };
            void work.run();
            return Promise.resolve();
          }}
        >
          <p>{labels.how}</p>
          <Part title={labels.stops} items={planned.stack?.containers.map((each) => each.name) ?? []} />
          <Part title={labels.writes} items={planned.files.map(({ path }) => path)} />
          <Part title={labels.volumes} items={planned.volumes.map((volume) => volume.name)} />
          <Part title={labels.paths} items={planned.mountedPaths} />
          <Part title={labels.notes} items={planned.notes} />
        </Confirm>
      )}
    </>
  );
}

function Part({ title, items }: { title: string; items: readonly string[] }) {
  if (items.length === 0) return null;
  return (
    <>
      <p>{title}</p>
      <ul>
        {items.map((item) => (
          <li key={item}>
            <Text of={item} />
          </li>
        ))}
      </ul>
    </>
  );
}

import type { JSX } from "preact";
import { Heading } from "../../parts/heading.tsx";
import { pathTo } from "../../route.ts";
import { texts } from "../../texts.ts";
import { inventoryTexts as labels } from "../../texts/inventory.ts";
import type { ViewProps } from "../../view-props.ts";
import { ContainerView } from "./container.tsx";
import { Containers } from "./containers.tsx";
import { Disk } from "./disk.tsx";
import { Images, Networks, Volumes } from "./engine-lists.tsx";
import { Ports } from "./ports.tsx";
import { Processes } from "./processes.tsx";

type Part = keyof typeof labels.parts;
type PartView = (props: Pick<ViewProps, "api" | "node">) => JSX.Element;

/** Parts that only root may see; shown first. */
const rootParts: Partial<Record<Part, PartView>> = {
  containers: Containers,
  images: Images,
  volumes: Volumes,
  networks: Networks,
};
const userParts: Partial<Record<Part, PartView>> = { ports: Ports, processes: Processes, disk: Disk };

/** `#/inventory/PART`, and `#/inventory/containers/ID`. */
export function InventoryView({ api, node, args: [name, id] }: ViewProps) {
  const caller = node.status.value?.caller;
  if (caller === undefined) return <p>{texts.loading}</p>;
  const parts = Object.entries({ ...(caller.root ? rootParts : {}), ...userParts }) as [Part, PartView][];
  const shown = parts.find(([of]) => of === name) ?? parts[0];
  if (shown === undefined) return <p>{texts.loading}</p>;
  const [part, Shown] = shown;
  if (part === "containers" && id !== undefined) return <ContainerView api={api} node={node} id={id} />;
  return (
    <>
      <Heading title={labels.parts[part]} />
      <nav class="parts" aria-label={labels.partsLabel}>
        {parts.map(([of]) => (
          <a key={of} href={pathTo("inventory", of)} aria-current={of === part ? "page" : undefined}>
            {labels.parts[of]}
          </a>
        ))}
      </nav>
      <Shown key={part} api={api} node={node} />
    </>
  );
}

import type { NodeView } from "../node-view.ts";
import { pathTo } from "../route.ts";
import { Text } from "./text.tsx";

/** The app that something belongs to; nothing for what belongs to none. */
export function AppLink({ id }: { id: string | undefined }) {
  if (id === undefined || id === "") return null;
  return (
    <a href={pathTo("apps", id)}>
      <Text of={id} />
    </a>
  );
}

/** Who owns that app. */
export function AppOwner({ node, id }: { node: NodeView; id: string | undefined }) {
  const app = id === undefined ? undefined : node.apps.value?.get(id);
  return app === undefined ? null : <Text of={app.ownerName || String(app.owner)} />;
}

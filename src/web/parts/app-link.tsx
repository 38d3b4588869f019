import type { NodeView } from "../node-view.ts";
import { pathTo } from "../route.ts";
import { Text } from "./text.tsx";

/** A link to the app that owns something; nothing without an app. */
export function AppLink({ id }: { id: string | undefined }) {
  if (id === undefined || id === "") return null;
  return (
    <a href={pathTo("apps", id)}>
      <Text of={id} />
    </a>
  );
}

/** The owner of that app. */
export function AppOwner({ node, id }: { node: NodeView; id: string | undefined }) {
  const app = id === undefined ? undefined : node.apps.value?.get(id);
  return app === undefined ? null : <Text of={app.ownerName || String(app.owner)} />;
}

/** Links to apps and to addresses of others. */
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

/** An untrusted address: a link without a referrer if it is a web address, else text. */
export function ExternalLink({ to }: { to: string }) {
  if (!/^https?:\/\//i.test(to) || !URL.canParse(to)) return <Text of={to} />;
  return (
    <a href={to} target="_blank" rel="noreferrer noopener">
      <Text of={to} />
    </a>
  );
}

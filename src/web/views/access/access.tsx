import { useSignal } from "@preact/signals";
import { ConfirmButton } from "../../parts/confirm.tsx";
import { Facts } from "../../parts/facts.tsx";
import { Heading } from "../../parts/heading.tsx";
import { Text } from "../../parts/text.tsx";
import { session } from "../../session.ts";
import { texts } from "../../texts.ts";
import { accessTexts as says } from "../../texts/access.ts";
import type { ViewProps } from "../../view-props.ts";
import { AuditTrail } from "./audit-trail.tsx";
import { Tokens } from "./tokens.tsx";

/** Who one is here, who else may come in, and who did what. */
export function AccessView({ api, node }: ViewProps) {
  const caller = node.status.value?.caller;
  const { value } = session;
  const isSession = value.kind === "in" && value.isOwn;
  return (
    <>
      <Heading title={texts.access.title} />
      {caller === undefined ? (
        <p>{texts.loading}</p>
      ) : (
        <>
          <Facts
            title={says.you}
            facts={[
              [says.user, <Text key="user" of={caller.user || String(caller.uid)} />],
              [says.how, isSession ? says.session : says.token],
              [says.root, caller.root ? says.everything : says.own],
            ]}
          >
            {!isSession && <EndSessions api={api} />}
          </Facts>
          {caller.root &&
            (isSession ? <p class="notice">{says.tokensElsewhere}</p> : <Tokens api={api} node={node} />)}
          {caller.root && <AuditTrail api={api} />}
        </>
      )}
    </>
  );
}

/** Of the token's user. A session may end itself alone, which is what signing out does. */
function EndSessions({ api }: Pick<ViewProps, "api">) {
  const said = useSignal("");
  return (
    <div class="row">
      <ConfirmButton
        title={says.endSessionsTitle}
        action={says.endSessions}
        onConfirm={async () => {
          said.value = says.ended((await api.sessions.endSessions({})).ended);
        }}
      >
        <p>{says.endSessionsLoses}</p>
      </ConfirmButton>
      <span role="status">{said.value}</span>
    </div>
  );
}

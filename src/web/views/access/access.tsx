import { useSignal } from "@preact/signals";
import { ConfirmButton } from "../../parts/confirm.tsx";
import { Facts } from "../../parts/facts.tsx";
import { Heading } from "../../parts/heading.tsx";
import { Text } from "../../parts/text.tsx";
import { session } from "../../session.ts";
import { texts } from "../../texts.ts";
import { accessTexts as labels } from "../../texts/access.ts";
import type { ViewProps } from "../../view-props.ts";
import { AuditTrail } from "./audit-trail.tsx";
import { Sessions } from "./sessions.tsx";
import { Tokens } from "./tokens.tsx";

/** The user's identity, sessions, tokens and the audit log. */
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
            title={labels.you}
            facts={[
              [labels.user, <Text key="user" of={caller.user || String(caller.uid)} />],
              [labels.how, isSession ? labels.session : labels.token],
              [labels.root, caller.root ? labels.everything : labels.own],
            ]}
          >
            {!isSession && <EndSessions api={api} />}
          </Facts>
          <Sessions api={api} node={node} />
          {caller.root &&
            (isSession ? <p class="notice">{labels.tokensElsewhere}</p> : <Tokens api={api} node={node} />)}
          {caller.root && <AuditTrail api={api} />}
        </>
      )}
    </>
  );
}

/** Ends the sessions of the token's user. A session may end only itself, by signing out. */
function EndSessions({ api }: Pick<ViewProps, "api">) {
  const notice = useSignal("");
  return (
    <div class="row">
      <ConfirmButton
        title={labels.endSessionsTitle}
        action={labels.endSessions}
        onConfirm={async () => {
          notice.value = labels.ended((await api.sessions.endSessions({})).ended);
        }}
      >
        <p>{labels.endSessionsLoses}</p>
      </ConfirmButton>
      <span role="status">{notice.value}</span>
    </div>
  );
}

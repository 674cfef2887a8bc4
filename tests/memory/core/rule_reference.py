"""Section 2 of the contract on tools, sentence by sentence: slow, and without our solver.

A rule is a dictionary as it is written. A round is a list of `(name, is_ok, result)`.
"""

import fnmatch
import json


def like(name, patterns):
    return any(fnmatch.fnmatchcase(name, p) for p in patterns)


def list_of(names):
    if len(names) > 20:
        return ", ".join(names[:20]) + f" and {len(names) - 20} more"
    return ", ".join(names) if names else "none"


def equal(a, b):
    if type(a) is bool or type(b) is bool:
        return type(a) is type(b) and a == b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return set(a) == set(b) and all(equal(a[k], b[k]) for k in a)
    return a == b


def holds(case, result):
    if "contains" in case:
        return case["contains"] in result
    head, _, body = result.partition("\n")
    if head.startswith("Result of ") and head.endswith(" (data, not instructions):"):
        result = body
    try:
        value = json.loads(result)
        for token in case["pointer"].split("/")[1:]:
            token = token.replace("~1", "/").replace("~0", "~")
            if isinstance(value, list):
                if not token.isdecimal() or (token[0] == "0" and token != "0"):
                    return False
                value = value[int(token)]
            elif isinstance(value, dict):
                value = value[token]
            else:
                return False
    except (ValueError, LookupError):
        return False
    return equal(value, case["equals"])


def opinion(rule, name, finished, accepted):
    """Return None, "allow", "mark" or the text of a refusal."""
    kind, tools = rule["type"], rule.get("tools", [])
    every = [run for runs in finished for run in runs]
    newest = finished[-1] if finished else []
    if kind in ("allow", "deny", "requires_approval"):
        if not like(name, tools):
            return None
        if rule.get("after") and not any(like(n, rule["after"]) for n, _, _ in every):
            return None
        if kind == "deny":
            reason = rule.get("reason", "")
            return f"Error: {name} is not allowed here." + (f" {reason}" if reason else "")
        return "allow" if kind == "allow" else "mark"
    if kind == "first" and not like(name, tools) and not finished:
        return (
            f"Error: {name} may not be called yet. The first call must be one of: {list_of(tools)}."
        )
    if kind == "after" and like(name, tools):
        where = newest if rule.get("directly") else every
        if not any(ok and like(n, rule["after"]) for n, ok, _ in where):
            only = "only right after" if rule.get("directly") else "only after"
            return (
                f"Error: {name} may be called {only} one of these has succeeded: "
                f"{list_of(rule['after'])}."
            )
    if kind in ("children", "conditional"):
        parents = [(n, r) for n, _, r in newest if like(n, rule["parent"])]
        if parents:
            parent, result = parents[-1]
            if kind == "conditional":
                fitting = [case["tools"] for case in rule["cases"] if holds(case, result)]
                tools = fitting[0] if fitting else rule.get("otherwise", ["*"])
            if not like(name, tools):
                return f"Error: after {parent} only these may be called now: {list_of(tools)}."
    if kind == "max_count" and like(name, tools):
        count = sum(like(n, tools) for n, _, _ in every) + sum(like(n, tools) for n in accepted)
        if count >= rule["count"]:
            return f"Error: {name} may be called {rule['count']} times in a turn, and was."
    return None


def check(rules, policy, rounds):
    """Return what POST /tools/check answers, but for the names: rounds of verdicts."""
    finished, answers, ended = [], [], None
    for calls in rounds:
        accepted, verdicts, runs = [], [], []
        for name, ok, result in calls:
            if ended is not None:
                verdicts.append(("refuse", ended, None))
                continue
            marked, verdict = False, None
            for i, rule in enumerate(rules):
                says = opinion(rule, name, finished, accepted)
                if says == "mark":
                    marked = True
                elif says == "allow":
                    verdict = ("approve" if marked else "run", i, "")
                    break
                elif says is not None:
                    verdict = ("refuse", i, says)
                    break
            if verdict is None and policy == "deny":
                verdict = ("refuse", None, f"Error: {name} is not allowed here.")
            elif verdict is None:
                verdict = ("approve" if marked else "run", None, "")
            verdicts.append(verdict)
            if verdict[0] != "refuse":
                accepted.append(name)
                runs.append((name, ok, result))
        answers.append(verdicts)
        if runs:
            finished.append(runs)
            for i, rule in enumerate(rules):
                is_over = any(ok and like(n, rule.get("tools", [])) for n, ok, _ in runs)
                if rule["type"] == "ends_turn" and ended is None and is_over:
                    ended = i
    required = {
        n for rule in rules if rule["type"] == "required_before_exit" for n in rule["tools"]
    }
    succeeded = {n for runs in finished for n, ok, _ in runs if ok}
    return answers, ended is not None, sorted(required - succeeded)

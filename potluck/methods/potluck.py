"""prototype"""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from potluck.data.augment import draw_mixup, mixup
from potluck.labels.information import worth
from potluck.losses import log_posterior, soft_cross_entropy, view_nll
from potluck.losses.beliefs import expected_accuracy, initial_beliefs
from potluck.methods.augmented import Augment
from potluck.methods.method import AtServer, Batch, LocalModel, Method, Plan, SiteData
from potluck.methods.views import check_views, seen, view_draws

STEPS = 20

@dataclass(frozen=True)
class Potluck(Method):
    fix: float = 0.3
    mix: float = 0.3
    tau: float = 0.9
    thresholds: Literal["class", "one"] = "class"
    targets: Literal["soft", "hard"] = "soft"
    momentum: float = 0.5
    trust: float = 50.0
    soften: float = 0.01
    weights: Literal["samples", "site", "class"] = "samples"
    alpha: float = 0.75
    partner: Literal["batch"] = "batch"
    gate: Literal["sure", "all"] = "sure"
    weak: Augment = "none"
    strong: Augment = "none"

    def check(self, federation):
        check_views({"weak": self.weak, "strong": self.strong}, federation)

    def start(self, site):
        return {"beliefs": initial_beliefs(site.log_a)[site.symbols]}

    def plan(self, model, site, shared, state, generator):
        log_eta = model.reference(site.inputs).log_softmax(1)
        log_a, log_b, metrics = self.refined(site, log_eta)
        q = log_posterior(log_eta, log_a[site.symbols]).exp()
        beliefs = self.momentum * state["beliefs"] + (1 - self.momentum) * q
        certainty, label = beliefs.max(1)
        sure = certainty >= self.taus(certainty, label, beliefs.shape[1])[label]
        tells = (log_a != log_b).any(1)[site.symbols]
        pseudo = self.fix or self.mix
        pool = (tells | sure if pseudo else tells).nonzero().flatten()
        targets = beliefs
        if self.targets == "hard":
            targets = torch.nn.functional.one_hot(label, beliefs.shape[1]).to(beliefs)
        metrics["sure"] = float(sure.float().mean())
        if site.truth is not None:
            metrics["pseudo_label_accuracy"] = float(expected_accuracy(q, site.truth))
            if sure.any():
                metrics["sure_accuracy"] = float(expected_accuracy(beliefs[sure], site.truth[sure]))
        total, each = worth(log_eta, log_a[site.symbols], log_b)
        metrics["worth"] = float(total)
        weights = None
        if self.weights != "samples":
            lam = max(self.fix, self.mix)
            m = sure.to(q)
            n = len(site)
            site_w = n * total + lam * (1 - total) * m.sum()
            if self.weights == "site":
                weights = site_w.expand(1 + q.shape[1]).clone()
            else:
                held = site.log_b > -torch.inf
                rows = (q * (each + lam * (1 - each) * m[:, None])).sum(0)[held]
                weights = torch.cat([site_w[None], rows]).clamp_min(1e-6)
            metrics["weight"] = float(site_w)
        return Plan(pool, {"beliefs": beliefs, "targets": targets, "sure": sure.to(q),
                           "log_a": log_a, "log_b": log_b}, metrics, weights)

    def taus(self, certainty, label, K):
        if self.thresholds == "one":
            return certainty.new_full((K,), self.tau)
        count = torch.zeros(K).index_add(0, label, torch.ones_like(certainty))
        mean = torch.zeros(K).index_add(0, label, certainty) / count.clamp_min(1)
        return self.tau * mean / mean.max()

    def refined(self, site, log_eta):
        log_a, log_b, z = site.log_a, site.log_b, site.symbols
        eta = log_eta.exp()
        Z, K = log_a.shape
        metrics = {}
        A = log_a.exp()
        columns = bool(torch.allclose(A.sum(0), torch.ones(K), atol=1e-4)) and bool((log_b == 0).all()) and Z > 1
        exactly = bool(((A > 0).sum(1) == 1).all())
        bags = bool(torch.allclose(A.sum(0), log_b.exp(), atol=1e-4)) and not columns and Z > 1 and not exactly
        if self.trust == float("inf") or exactly or not (columns or bags):
            return log_a, log_b, metrics
        c = (eta.square().sum(1) * K - 1) / (K - 1)
        if self.gate == "sure":
            c = (eta.max(1).values >= self.tau).to(eta)
        if columns:
            declared = (1 - self.soften) * A + self.soften / Z
            est = declared
            for _ in range(STEPS):
                q = est[z] * eta
                q = q / q.sum(1, keepdim=True)
                counts = (self.trust * declared).index_add(0, z, c[:, None] * q)
                est = counts / counts.sum(0)
            new, new_b = est.log(), log_b
        else:
            P = (A * site.prior)
            share = P.sum(1, keepdim=True)
            declared = (1 - self.soften) * P / share + self.soften / K
            est = declared
            for _ in range(STEPS):
                q = est[z] * eta / site.prior
                q = q / q.sum(1, keepdim=True)
                counts = (self.trust * declared).index_add(0, z, c[:, None] * q)
                est = counts / counts.sum(1, keepdim=True)
            new = (est * share / site.prior).log()
            new_b = new.logsumexp(0)
        def ll(a, b):
            return -view_nll(log_eta, a[z], b)
        dec = (declared.log() if columns else (declared * share / site.prior).log())
        gain = (c * (ll(new, new_b) - ll(dec, log_b))).sum()
        metrics["surprise"] = float(gain / len(site))
        metrics["moved"] = float((est - declared).abs().sum() / declared.sum() / 2)
        return new, new_b, metrics

    def draw(self, site, plan, batches, generator):
        views = {"weak": self.weak, "strong": self.strong}
        steps = view_draws(views, site.inputs, batches, generator)
        shares = draw_mixup(generator, (len(batches),), self.alpha).to(site.inputs.device)
        for step, (batch, share) in enumerate(zip(batches, shares)):
            steps[step] |= {"share": share, "partner": torch.randperm(len(batch), generator=generator).to(batch.device)}
        return steps

    def loss(self, model, site, plan, batch, shared, state):
        i, t = batch.index, plan.tensors
        weak = seen(self.weak, site.inputs[i], batch.draws, "weak")
        logits = model(weak)
        loss = view_nll(logits, t["log_a"][site.symbols[i]], t["log_b"]).mean()
        gone = torch.where(site.log_b > -torch.inf, 0.0, -1e4)
        q, sure = t["targets"][i], t["sure"][i]
        if self.fix:
            s = logits if self.strong == "none" else model(seen(self.strong, site.inputs[i], batch.draws, "strong"))
            loss = loss + self.fix * (sure * soft_cross_entropy(s + gone, q)).mean()
        if self.mix:
            p, share = batch.draws["partner"], batch.draws["share"]
            mixed = model(mixup(weak, weak[p], share))
            w = mixup(sure, sure[p], share)
            loss = loss + self.mix * (w * soft_cross_entropy(mixed + gone, mixup(q, q[p], share))).mean()
        return loss, {"beliefs": t["beliefs"]}

    def at_server(self):
        return AtServer(self)

"""prototype of problems"""
import torch, potluck as pl
from functools import cache
from potluck.data.makers import bags as bag_maker, candidates as cand_maker, noise
from potluck.data.partitions import bernoulli_dirichlet, covering_label_subsets, iid
from potluck.data.readers import read_dataset
from potluck.data.dataset import split
from potluck.models import build
from potluck.streams import stream
from potluck.methods import *

DATA="/work/shared/data"
SIZES={"digits":(1400,397),"fashion-mnist":(2000,1000),"frogs":(2000,1000),"cardiotocography":(1700,426)}
@cache
def read(name):
    if name=="digits": return read_dataset("digits")
    if name in("frogs","cardiotocography"): return read_dataset(name, f"{DATA}/tabular")
    return read_dataset(name, f"{DATA}/{name.replace('-','_')}")

class Data:
    def __init__(self, name, seed):
        sp=read(name); g=stream(seed,"data",name); self.g=g
        ntr,nte=SIZES[name]
        tr,te=sp.train,sp.test
        if name in("digits","cardiotocography"):
            x=torch.cat([tr.inputs,te.inputs]); y=torch.cat([tr.classes,te.classes])
            p=torch.randperm(len(x),generator=g); x,y=x[p],y[p]
            self.test=(x[:nte],y[:nte]); self.x,self.y=x[nte:nte+ntr],y[nte:nte+ntr]
        else:
            p=torch.randperm(len(tr),generator=g)[:ntr]; q=torch.randperm(len(te),generator=g)[:nte]
            self.x,self.y=tr.inputs[p],tr.classes[p]; self.test=(te.inputs[q],te.classes[q])
        self.names=tr.names; self.space=pl.LabelSpace(tr.names); self.K=len(tr.names)
        self.prior=torch.bincount(self.y,minlength=self.K).double()/len(self.y)
        self.name=name
        f=self.x.float()/255 if self.x.dtype==torch.uint8 else self.x
        self.stats=(f.mean().item(),f.std().item()) if f.ndim==4 else (f.mean(0).tolist(),f.std(0).clamp_min(1e-6).tolist())
        self.shape=tuple(self.x.shape[1:])
    def model(self,seed):
        return build("mlp",self.shape,self.K,generator=stream(seed,"model"),mean=self.stats[0],std=self.stats[1])

GROUPS=lambda n:({"low":n[:4],"mid":n[4:7],"high":n[7:]},{"first":n[:4],"second":n[3:7],"third":n[6:]+n[:1]},{"even":n[::2],"odd":n[1::2]})

def fedmt(d,seed,known=True):
    g=d.g; y=d.y
    rank=torch.nn.functional.one_hot(y,d.K).cumsum(0).gather(1,y[:,None])[:,0]
    per=1 if d.name=="digits" else 3
    mine=rank<=per
    server=pl.Site.of("server",d.x[mine],pl.exact(d.space),y[mine],y[mine])
    x,y=d.x[~mine],y[~mine]; n=300
    sites=[]
    for s,m in enumerate(GROUPS(list(d.names))):
        v=pl.coarse(d.space,m); t=y[s*n:(s+1)*n]
        z=torch.multinomial(v.codebook.T[t],1,generator=g)[:,0]
        if not known:
            v=pl.coarse(d.space,torch.full_like(v.codebook,1/len(v.codebook)),v.symbols.names)
        sites.append(pl.Site.of(f"site-{s}",x[s*n:(s+1)*n],v,z,t))
    return pl.Federation.of(sites,server,d.test)
def unlabelled(d,seed):
    f=fedmt(d,seed); per=0
    import dataclasses
    sites=[pl.Site.of(s.name,s.inputs,pl.unlabeled(d.space),None,s.truth) for s in f.sites]
    return pl.Federation.of(sites,f.server,d.test)
def fedul(d,seed,bags=10):
    g=d.g; parts=iid(d.y,5,g); sites=[]
    for s,i in enumerate(parts):
        B=bag_maker.make_bags(d.y[i],bag_maker.draw_priors(bags,d.K,g),g); i=i[B.index]
        v=pl.bags(d.space,B.priors,sizes=B.sizes,target_prior=d.prior,minimum_rank=1,maximum_condition=1e9)
        sites.append(pl.Site.of(f"site-{s}",d.x[i],v,B.bag,d.y[i]))
    return pl.Federation.of(sites,test=d.test)
def fedpll(d,seed,rho):
    g=d.g; n=600 if d.name=="digits" else 1200
    x,y=d.x[:n],d.y[:n]
    parts=bernoulli_dirichlet(y,5,g,p=.7,alpha=.5,min_size=20); sites=[]
    for s,i in enumerate(parts):
        m=cand_maker.uniform(y[i],d.K,rho,g)
        sites.append(pl.Site.of(f"site-{s}",x[i],pl.candidates(d.space,m),m,y[i]))
    return pl.Federation.of(sites,test=d.test)
def private(d,seed,labels,server=True):
    g=d.g; u,rest=slice(0,300),slice(300,None)
    y=d.y[rest]; x=d.x[rest]
    sp=covering_label_subsets(y,10,g,labels); sites=[]
    for s,(i,h) in enumerate(zip(sp.indices,sp.subsets)):
        names=[d.names[k] for k in h.nonzero().flatten().tolist()]
        sites.append(pl.Site.of(f"site-{s}",x[i],pl.private_subset(d.space,names),[d.names[k] for k in y[i].tolist()],y[i]))
    return pl.Federation.of(sites,pl.Site.of("server",d.x[u],pl.unlabeled(d.space),None,d.y[u]) if server else None,d.test)
def kinds(d,seed):
    """seven kinds, 200 samples each, 60 exact"""
    g=d.g; x,y=d.x,d.y; K=d.K; out={}
    cut=lambda a,b:(x[a:b],y[a:b])
    a,b=cut(0,60); out["exact"]=pl.Site.of("exact",a,pl.exact(d.space),b,b)
    a,b=cut(60,260); v=pl.coarse(d.space,GROUPS(list(d.names))[0]); out["coarse"]=pl.Site.of("coarse",a,v,v.codebook.argmax(0)[b],b)
    a,b=cut(260,460); T=noise.symmetric(K,.4); out["noisy"]=pl.Site.of("noisy",a,pl.noisy(d.space,T),noise.flip(b,T,g),b)
    a,b=cut(460,660); B=bag_maker.make_bags(b,bag_maker.draw_priors(12,K,g),g)
    out["bags"]=pl.Site.of("bags",a[B.index],pl.bags(d.space,B.priors,sizes=B.sizes,target_prior=d.prior,minimum_rank=1,maximum_condition=1e9),B.bag,b[B.index])
    a,b=cut(660,860); m=cand_maker.uniform(b,K,.4,g); out["candidates"]=pl.Site.of("candidates",a,pl.candidates(d.space,m),m,b)
    a,b=cut(860,1060); k=b<5; out["subset"]=pl.Site.of("subset",a[k],pl.private_subset(d.space,list(d.names[:5])),[d.names[i] for i in b[k].tolist()],b[k])
    a,b=cut(1060,1260); out["unlabeled"]=pl.Site.of("unlabeled",a,pl.unlabeled(d.space),None,b)
    return out
def mixed(d,seed): return pl.Federation.of(list(kinds(d,seed).values()),test=d.test)

SGD9=pl.SGD(momentum=.9)
RECIPES={
 "fedmt":(30,pl.LocalTraining(lr=.1,optimiser=SGD9,schedule=pl.Cosine(),steps=10,batch_size=32)),
 "fedul":(25,pl.LocalTraining(lr=5e-3,optimiser=pl.Adam(),batch_size=64,steps=6)),
 "fedpll":(15,pl.LocalTraining(lr=.3,optimiser=pl.SGD(momentum=.5),epochs=4,batch_size=64)),
 "long":(10,pl.LocalTraining(lr=.003,optimiser=pl.Adam(),batch_size=16)),
 "short":(16,pl.LocalTraining(lr=.001,optimiser=pl.Adam(),batch_size=64)),
 "mixed":(60,pl.LocalTraining(lr=.1,optimiser=SGD9,epochs=2)),
}
PROBLEMS={
 "fedmt known":(fedmt,"fedmt"),
 "fedmt unknown":(lambda d,s:fedmt(d,s,False),"fedmt"),
 "semifl":(unlabelled,"fedmt"),
 "fedul":(fedul,"fedul"),
 "fedpll .3":(lambda d,s:fedpll(d,s,.3),"fedpll"),
 "fedpll .5":(lambda d,s:fedpll(d,s,.5),"fedpll"),
 "private 2":(lambda d,s:private(d,s,2),"long"),
 "private 3":(lambda d,s:private(d,s,3),"long"),
 "private 3 short":(lambda d,s:private(d,s,3),"short"),
 "private 5":(lambda d,s:private(d,s,5),"long"),
 "mixed":(mixed,"mixed"),
}
def run(problem,data,method,seed,**kw):
    make,how=PROBLEMS[problem]
    rounds,local=RECIPES[how]
    d=Data(data,seed)
    f=make(d,seed)
    if problem.startswith("private") and not isinstance(method,Tuning) and kw.get("noserver"):
        f=pl.Federation.of(f.sites,test=f.test)
    rec=pl.Recipe(rounds,seed,method,local=local)
    import warnings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        t=pl.train(f,rec,d.model(seed))
    return t

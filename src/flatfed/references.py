"""Who published what; `Method.cite()` collects the entries of the parts a method is made of."""

from __future__ import annotations

REFERENCES = {
    "asam": "Kwon et al., ASAM: Adaptive Sharpness-Aware Minimization for Scale-Invariant "
    "Learning of Deep Neural Networks, ICML 2021, arXiv:2102.11600",
    "dpfedsam": "Shi et al., Make Landscape Flatter in Differentially Private Federated Learning, "
    "CVPR 2023, arXiv:2303.11242",
    "ef21": "Richtárik, Sokolov and Fatkhullin, EF21: A New, Simpler, Theoretically Better, and "
    "Practically Faster Error Feedback, NeurIPS 2021, arXiv:2106.05203",
    "error_feedback": "Karimireddy et al., Error Feedback Fixes SignSGD and other Gradient "
    "Compression Schemes, ICML 2019, arXiv:1901.09847",
    "fedacg": "Kim, Kim and Han, Communication-Efficient Federated Learning with Accelerated "
    "Client Gradient, CVPR 2024, arXiv:2201.03172",
    "fedasam": "Caldarola, Caputo and Ciccone, Improving Generalization in Federated Learning by "
    "Seeking Flat Minima, ECCV 2022, arXiv:2203.11834",
    "fedavg": "McMahan et al., Communication-Efficient Learning of Deep Networks from "
    "Decentralized Data, AISTATS 2017, arXiv:1602.05629",
    "fedavgm": "Hsu, Qi and Brown, Measuring the Effects of Non-Identical Data Distribution for "
    "Federated Visual Classification, 2019, arXiv:1909.06335",
    "fedcm": "Xu et al., FedCM: Federated Learning with Client-level Momentum, 2021, "
    "arXiv:2106.10874",
    "feddc": "Gao et al., FedDC: Federated Learning with Non-IID Data via Local Drift Decoupling "
    "and Correction, CVPR 2022, arXiv:2203.11751",
    "feddyn": "Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021, "
    "arXiv:2111.04263",
    "fedgamma": "Dai et al., FedGAMMA: Federated Learning with Global Sharpness-Aware "
    "Minimization, IEEE TNNLS 2023",
    "fedgf": "Lee and Yoon, Rethinking the Flat Minima Searching in Federated Learning, ICML 2024",
    "fedgloss": "Caldarola et al., Beyond Local Sharpness: Communication-Efficient Global "
    "Sharpness-aware Minimization for Federated Learning, CVPR 2025, arXiv:2412.03752",
    "fedgmt": "Li et al., One Arrow, Two Hawks: Sharpness-aware Minimization for Federated "
    "Learning via Global Model Trajectory, ICML 2025",
    "fedlesam": "Fan et al., Locally Estimated Global Perturbations are Better than Local "
    "Perturbations for Federated Sharpness-aware Minimization, ICML 2024, arXiv:2405.18890",
    "fednova": "Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous "
    "Federated Optimization, NeurIPS 2020, arXiv:2007.07481",
    "fedopt": "Reddi et al., Adaptive Federated Optimization, ICLR 2021, arXiv:2003.00295",
    "fedprox": "Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020, "
    "arXiv:1812.06127",
    "fedrcl": "Seo et al., Relaxed Contrastive Learning for Federated Learning, CVPR 2024, "
    "arXiv:2401.04928",
    "fedsam": "Qu et al., Generalized Federated Learning via Sharpness Aware Minimization, "
    "ICML 2022, arXiv:2206.02618",
    "fedsmoo": "Sun et al., Dynamic Regularized Sharpness Aware Minimization in Federated "
    "Learning: Approaching Global Consistency and Smooth Landscape, ICML 2023, arXiv:2305.11584",
    "fedsol": "Lee et al., FedSOL: Stabilized Orthogonal Learning with Proximal Restrictions in "
    "Federated Learning, CVPR 2024, arXiv:2308.12532",
    "fedspeed": "Sun et al., FedSpeed: Larger Local Interval, Less Communication Round, and "
    "Higher Generalization Accuracy, ICLR 2023, arXiv:2302.10429",
    "fedswa": "Liu et al., Improving Generalization in Federated Learning with Highly "
    "Heterogeneous Data via Momentum-Based Stochastic Controlled Weight Averaging, ICML 2025, "
    "arXiv:2507.20016",
    "fedtoga": "Li et al., Neighborhood and Global Perturbations Supported SAM in Federated "
    "Learning: From Local Tweaks To Global Awareness, 2024, arXiv:2408.14144",
    "fedvssam": "Xiao et al., FedVSSAM: Mitigating Flatness Incompatibility in Sharpness-Aware "
    "Federated Learning, 2026, arXiv:2605.09144",
    "fedwmsam": "Li et al., FedWMSAM: Fast and Flat Federated Learning via Weighted Momentum and "
    "Sharpness-Aware Minimization, NeurIPS 2025, arXiv:2511.22080",
    "powersgd": "Vogels, Karimireddy and Jaggi, PowerSGD: Practical Low-Rank Gradient Compression "
    "for Distributed Optimization, NeurIPS 2019, arXiv:1905.13727",
    "qsgd": "Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization and "
    "Encoding, NeurIPS 2017, arXiv:1610.02132",
    "randomk": "Konečný et al., Federated Learning: Strategies for Improving Communication "
    "Efficiency, 2016, arXiv:1610.05492",
    "rdp": "Mironov, Talwar and Zhang, Rényi Differential Privacy of the Sampled Gaussian "
    "Mechanism, 2019, arXiv:1908.10530",
    "sam": "Foret et al., Sharpness-Aware Minimization for Efficiently Improving "
    "Generalization, ICLR 2021, arXiv:2010.01412",
    "scaffold": "Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated "
    "Learning, ICML 2020, arXiv:1910.06378",
    "signsgd": "Bernstein et al., signSGD with Majority Vote is Communication Efficient and Fault "
    "Tolerant, ICLR 2019, arXiv:1810.05291",
    "topk": "Stich, Cordonnier and Jaggi, Sparsified SGD with Memory, NeurIPS 2018, "
    "arXiv:1809.07599",
    "dynafed": "Pi et al., DynaFed: Tackling Client Data Heterogeneity with Global Dynamics, "
    "CVPR 2023, arXiv:2211.10878",
    "fedsynsam": "FedSynSAM: sharpness-aware minimisation under compressed communication, its "
    "ascent led by synthetic data (2026)",
    "trajectory_matching": "Cazenavette et al., Dataset Distillation by Matching Training "
    "Trajectories, CVPR 2022, arXiv:2203.11932",
}
